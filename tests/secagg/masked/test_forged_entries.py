"""Wrong shares: those within the spare ones are done without and named, those beyond leave no total."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.by_hand import ByHand, forged
from support.examples import examples
from support.rows import ROWS, make

from secagg import Layout, MaskedSum, PartyId, run_in_memory
from secagg.errors import RemoteProtocolError, SecureSumError
from secagg.in_memory import Envelope
from secagg.layout import IntVector
from secagg.masked import client as client_module
from secagg.primitives.shamir import PRIME, SHARE_BYTES
from secagg.wire import MessageType, message_type

CLIENTS = (1, 2, 3, 4, 5)
LAYOUT = Layout.of([("counts", 40, 2**16)])
"""24 bits carry 17: noise passes one entry's bound with probability 2^-7, all forty with 2^-280."""

CONFIG = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), threshold=3)


def vectors_of(parties: Iterable[PartyId]) -> dict[PartyId, IntVector]:
    """What clients put in."""
    return {party: np.arange(40, dtype=np.int64) * party for party in parties}


def begin(n_clients: int = 5, threshold: int = 3, gone: Iterable[PartyId] = ()) -> ByHand:
    """A sum on the complete graph, some of whose clients leave after the shares."""
    config = replace(CONFIG, clients=tuple(range(1, n_clients + 1)), threshold=threshold)
    return ByHand(config, vectors_of(config.clients), gone=dict.fromkeys(gone, 2))


def lie(hand: ByHand, liar: PartyId, owners: Iterable[PartyId], change: Callable[[int], int] = lambda s: s ^ 1) -> None:
    """Change the shares that a client reveals of these clients' secrets."""
    said = hand.until(MessageType.UNMASK_SHARES)
    shares = hand.read(said[liar])
    for owner in owners:
        held = shares.mask_key_shares if owner in shares.mask_key_shares else shares.self_mask_shares
        held[owner] = change(int.from_bytes(held[owner], "big")).to_bytes(SHARE_BYTES, "big")
    said[liar] = forged(said[liar], shares)


def ones(_: int) -> int:
    """What is no field element."""
    return 2 ** (8 * SHARE_BYTES) - 1


@pytest.mark.parametrize("liars", [(1,), (5,), (2, 3)], ids=str)
def test_shares_that_are_no_field_elements_are_done_without(liars: tuple[PartyId, ...]) -> None:
    """Who gave them, the holder or the owner, is disputed; each costs one spare share."""
    hand = begin()
    for liar in liars:
        lie(hand, liar, CLIENTS, ones)
    assert hand.finishes_exactly() == CLIENTS
    assert set(hand.server.result.disputes) == {(owner, liar) for owner in CLIENTS for liar in liars}


def ends(hand: ByHand, told: str) -> PartyId | None:
    """That nothing is released, and why; whom the error names."""
    with pytest.raises(RemoteProtocolError, match=told) as caught:
        hand.finish()
    assert hand.server.result is None
    return caught.value.peer


@pytest.mark.parametrize(
    ("n", "threshold", "liars", "change", "told"),
    [
        (5, 3, (1, 2, 4), ones, "2 revealed shares do not rebuild party 1's secret, which takes 3"),
        (15, 8, (1, 2, 3, 4), lambda s: s ^ 1, "15 revealed shares do not rebuild party 1's secret, which takes 8"),
    ],
    ids=["no field elements", "too many"],
)
def test_too_many_liars_end_the_sum_without_a_total(
    n: int, threshold: int, liars: tuple[PartyId, ...], change: Callable[[int], int], told: str
) -> None:
    hand = begin(n, threshold)
    for liar in liars:
        lie(hand, liar, hand.config.clients, change)
    ends(hand, told)


@pytest.mark.parametrize(("liars", "gone"), [((1,), ()), ((2, 7), ()), ((1, 4, 9), ()), ((2, 7), (3, 12))], ids=str)
def test_liars_within_the_spare_shares_are_named_and_done_without(
    liars: tuple[PartyId, ...], gone: tuple[PartyId, ...]
) -> None:
    """15 clients, 8 shares open a secret: 15 or 13 come, of which 3 or 2 may be wrong."""
    hand = begin(15, 8, gone)
    for liar in liars:
        lie(hand, liar, hand.config.clients)
    assert hand.finishes_exactly() == tuple(party for party in hand.config.clients if party not in gone)
    result = hand.server.result
    assert set(result.disputes) == {(owner, liar) for owner in hand.config.clients for liar in liars}
    assert result.malicious_parties(corrupt=hand.config.corrupt) == liars


def test_liars_that_are_too_many_at_once_are_survived_where_they_show_one_by_one() -> None:
    """Six of seven spare shares are wrong about client 15; five of these were found with the secrets before it."""
    hand = begin(15, 8)
    for owner, liar in ((1, 1), (1, 2), (1, 3), (2, 4), (2, 5)):
        lie(hand, liar, [owner, 15])
    lie(hand, 6, [15])
    assert hand.finishes_exactly() == hand.config.clients
    result = hand.server.result
    assert {holder for owner, holder in result.disputes if owner == 15} == {1, 2, 3, 4, 5, 6}
    assert result.malicious_parties(corrupt=5) == (15,)


def test_a_disputed_share_says_that_one_of_two_lied_and_no_more() -> None:
    hand = begin(15, 8)
    lie(hand, 3, [5])
    assert hand.finishes_exactly() == hand.config.clients
    assert hand.server.result.disputes == ((5, 3),)
    assert hand.server.result.malicious_parties(corrupt=1) == ()


@pytest.mark.parametrize("liar", CLIENTS[:4])
@pytest.mark.parametrize("about", ["a survivor's self-mask", "its own self-mask", "a dropout's mask key"])
@pytest.mark.parametrize("change", [1, PRIME - 1, "beyond the field"])
def test_a_wrong_share_never_gives_a_wrong_sum(liar: int, about: str, change: int | str) -> None:
    """Four answer and four are needed: there is none to spare."""
    hand = begin(threshold=4, gone=[5])
    owner = 5 if "dropout" in about else liar if "own" in about else liar % 4 + 1
    lie(hand, liar, [owner], lambda share: PRIME + 1 if change == "beyond the field" else (share + int(change)) % PRIME)
    ends(hand, "rebuild party|revealed shares")


@pytest.mark.parametrize(
    ("n", "threshold", "gone"), [(5, 4, ()), (5, 4, (2,)), (15, 8, ())], ids=["survives", "vanishes", "of many"]
)
def test_wrong_shares_inside_sealed_boxes_never_give_a_wrong_sum(
    n: int, threshold: int, gone: tuple[PartyId, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client 2 seals shares of other secrets than its own: each box opens, and together they open something else."""
    hand, honest = begin(n, threshold, gone), client_module.split
    roster = hand.until(MessageType.ROSTER).pop(2)

    def lying(secret: bytes, **arguments: Any) -> dict[int, bytes]:
        return honest(bytes(31) + b"\1", **arguments)

    monkeypatch.setattr(client_module, "split", lying)
    lies = hand.sessions[2].receive(roster)
    monkeypatch.setattr(client_module, "split", honest)
    hand.to_parties()[2] = lies
    if n == 15:  # enough to tell
        assert ends(hand, "it shared another secret than the one that it is bound to") == 2
    else:
        ends(hand, "party 2's secret, which takes 4: it shared, or too many others revealed, wrong ones")


class Tampering:
    """Flips one bit of one message of a type; of which one, the test draws."""

    def __init__(self, victim: MessageType, which: int, bit: int) -> None:
        self._victim, self._which, self._bit = victim, which, bit
        self.changed = False

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        for envelope in envelopes:
            self._which -= message_type(envelope.message) is self._victim
            if self.changed or self._which != -1:
                yield envelope
                continue
            message, at = bytearray(envelope.message), self._bit % (8 * len(envelope.message))
            message[at // 8] ^= 1 << at % 8
            self.changed = True
            yield replace(envelope, message=bytes(message))


@examples(4)
@given(
    victim=st.sampled_from([t for t in MessageType if 16 <= t <= 24 and t is not MessageType.MASKED_INPUT]),
    which=st.integers(0, 4),
    bit=st.integers(0, 2**16),
    dropouts=st.dictionaries(st.sampled_from(CLIENTS), st.integers(0, 3), max_size=1),
)
def test_one_flipped_bit_never_gives_a_wrong_sum(
    victim: MessageType, which: int, bit: int, dropouts: dict[int, int]
) -> None:
    """Without identities, in any message but the masked vector: the exact sum or a named error.

    The vector has the transport's protection alone. With identities every change is refused
    (``contracts/test_active_adversary.py``).
    """
    network, vectors = Tampering(victim, which, bit), vectors_of(CLIENTS)
    parties = make(ROWS["masked"], layout=LAYOUT, clients=CLIENTS)
    try:
        run = run_in_memory(parties, vectors, network=network, dropouts=dropouts)
    except SecureSumError:
        assert network.changed
    else:
        assert run.result.total.tobytes() == sum(vectors[party] for party in run.result.survivors).tobytes()
