"""Whatever a server tells whom, it learns no vector and no sum of fewer than promised; and the oracle sees it if so.

Laws: whatever a lying server does to real sessions, no combination of fewer honest clients' vectors than
``protocol.guarantee`` promises follows from the bytes that it and its colluders can open. Plants: with one check
switched off, the same search finds the vector.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leakage.equations import Equation, Span
from leakage.lying_server import (
    LAYOUT,
    Attack,
    Certified,
    Choose,
    Committee,
    Masked,
    Stage,
    Unmasked,
    box_key_of,
    honest,
    identity_of,
    strategies,
)
from support.extras import needs
from support.parties import sealed_to

from secagg import Assumptions, CommitteeSum, MaskedSum, PlainSum
from secagg.committee import client as committee_client
from secagg.committee import protocol as committee_protocol
from secagg.committee.client import CommitteeClient
from secagg.committee.helper import CommitteeHelper
from secagg.committee.seed_sharing import ReplicatedSharing
from secagg.config import SERVER
from secagg.encoder import EncodedSum
from secagg.encryption import encrypted
from secagg.encryption.key_holder import KeyHolder, KeyHolderState, agrees_first
from secagg.errors import ConfigurationError
from secagg.masked import client as masked_client
from secagg.masked.client import MaskedClient
from secagg.masked.messages import UnmaskShares
from secagg.masked.series import MaskedSeries
from secagg.masked.states import ClientState
from secagg.primitives import mask_stream
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import MessageType, Reader

HELPERS = (101, 102, 103, 104)


def masked(n: int, *, number: int = 0, identities: bool = True, **options: object) -> MaskedSum:
    clients = tuple(range(1, n + 1))
    public = tuple(identity_of(party).public for party in clients) if identities else ()
    names = {"identities": public, "server_identity": identity_of(SERVER).public if identities else b""}
    return MaskedSum(layout=LAYOUT, clients=clients, session_id=bytes([number]) * 16, **names, **options)


def committee(
    n: int, *, number: int = 0, identities: bool = True, survivors: int, helpers: int = 2, corrupt: int = 1
) -> CommitteeSum:
    clients, some = tuple(range(1, n + 1)), HELPERS[:helpers]
    keys = {helper: box_key_of(helper).public for helper in some}
    unsigned = {"helper_keys": tuple(keys.items())}
    return CommitteeSum(
        layout=LAYOUT,
        clients=clients,
        session_id=bytes([number]) * 16,
        min_survivors=survivors,
        corrupt_helpers=corrupt,
        identities=tuple(identity_of(party).public for party in clients) if identities else (),
        server_identity=identity_of(SERVER).public if identities else b"",
        **(sealed_to({helper: identity_of(helper) for helper in some}, keys) if identities else unsigned),
    )


def sparse(n: int, degree: int, threshold: int, *, corrupt: int = 0, dropouts: int = 1, **bits: float) -> MaskedSum:
    promised = Assumptions(corruption=corrupt / n, dropout=dropouts / n, malicious_server=True, **bits)
    return masked(n, assumptions=promised, threshold=threshold, degree=degree, graph_seed=bytes(16))


def over_bfv(alone: EncodedSum, *colluders: int, may_lie: bool = True) -> Stage:
    """The sum with its vectors encrypted; the key holder is whoever is no client."""
    needs("tenseal")
    holder = len(alone.clients) + 1
    parties = encrypted(alone, "bfv", key_holder=holder, identity=identity_of(holder) if alone.identities else None)
    assert isinstance(parties.protocol, MaskedSum | PlainSum)
    decryption = parties.of_party(holder).decryption
    return Stage((parties.protocol,), frozenset(colluders), may_lie=may_lie, decryption=decryption)


def unmasked(n: int, *, identities: bool = False) -> PlainSum:
    clients = tuple(range(1, n + 1))
    return PlainSum(
        layout=LAYOUT,
        clients=clients,
        session_id=bytes(16),
        min_survivors=n // 2 + 1,
        identities=tuple(identity_of(party).public for party in clients) if identities else (),
        server_identity=identity_of(SERVER).public if identities else b"",
    )


def of(stage: Stage) -> type[Attack]:
    if isinstance(alone := stage.sums[0], EncodedSum) and agrees_first(alone):
        return Certified
    attacks: dict[type, type[Attack]] = {MaskedSum: Masked, PlainSum: Unmasked, CommitteeSum: Committee}
    return attacks[type(stage.sums[0])]


class LeakError(AssertionError):
    """What no server may find."""


def played(stage: Stage, choose: Choose) -> Attack:
    attack = of(stage)(stage, choose)
    attack.play()
    if (found := attack.leak()) is not None:
        raise LeakError(f"a combination of {found.clients} alone: {dict(found.vectors)}")
    return attack


# Laws

TWO_SUMS = (0, 1)


def series(n: int) -> Stage:
    public = tuple(identity_of(party).public for party in range(1, n + 1))
    sums = MaskedSeries(
        clients=tuple(range(1, n + 1)),
        series_id=bytes(16),
        threshold=3,
        identities=public,
        server_identity=identity_of(SERVER).public,
    )
    return Stage(tuple(sums.sum(k, LAYOUT, b"") for k in TWO_SUMS), frozenset({n}), series=sums, reorders=True)


EXHAUSTIVE: dict[str, Callable[[], Stage]] = {
    "masked, 3": lambda: Stage((masked(3, threshold=2),)),
    "masked, 3, one colludes": lambda: Stage((masked(3, threshold=3),), frozenset({3})),
    "masked, 4, one colludes": lambda: Stage((masked(4, threshold=3),), frozenset({4})),
    "masked, 4, one colludes, no identities, no lies": lambda: Stage(
        (masked(4, threshold=3, identities=False),), frozenset({4}), may_lie=False
    ),
    "committee, 4, one client and one helper collude": lambda: Stage((committee(4, survivors=3),), frozenset({4, 101})),
    "committee of 4, 4, one client and one helper collude": lambda: Stage(
        (committee(4, survivors=3, helpers=4),), frozenset({4, 101})
    ),
    "bfv, 3, and what is certified to have failed": lambda: over_bfv(unmasked(3, identities=True)),
    "masked+bfv, 3": lambda: over_bfv(masked(3, threshold=2)),
    "masked+bfv, 3, the key holder colludes": lambda: over_bfv(masked(3, threshold=2), 4),
}

RANDOM: dict[str, Callable[[], Stage]] = {
    "masked, 7, two collude, two sums": lambda: Stage(
        tuple(masked(7, number=k, threshold=5) for k in TWO_SUMS), frozenset({2, 7}), reorders=True
    ),
    "masked, 6, one colludes, no identities, no lies, two sums": lambda: Stage(
        tuple(masked(6, number=k, threshold=4, identities=False) for k in TWO_SUMS), frozenset({6}), may_lie=False
    ),
    "masked, 12 on a sparse graph, one colludes": lambda: Stage(
        (sparse(12, 8, 6, corrupt=1),), frozenset({5}), reorders=True
    ),
    "series, 4, one colludes": lambda: series(4),
    "committee, 6, two clients and one helper collude, two sums": lambda: Stage(
        tuple(committee(6, number=k, survivors=4) for k in TWO_SUMS), frozenset({1, 6, 102}), reorders=True
    ),
    "committee of 4, 5, one client and one helper collude, two sums": lambda: Stage(
        tuple(committee(5, number=k, survivors=3, helpers=4) for k in TWO_SUMS), frozenset({5, 102}), reorders=True
    ),
    "committee, 5, one helper colludes, no identities, no lies": lambda: Stage(
        (committee(5, survivors=3, identities=False),), frozenset({101}), may_lie=False
    ),
    "masked+bfv, 5, one colludes": lambda: over_bfv(masked(5, threshold=4), 5),
    "bfv, 6, one colludes, no lies": lambda: over_bfv(unmasked(6), 6, may_lie=False),
}

LIES = st.dictionaries(st.integers(0, 250), st.integers(1, 11), max_size=14)
"""At which choices the server departs from honesty, and how."""


def exhausted(cohort: str, lies: int) -> int:
    stage = EXHAUSTIVE[cohort]()
    return strategies(lambda choose: played(stage, choose), lies)


@pytest.mark.parametrize("cohort", [cohort for cohort in EXHAUSTIVE if cohort != "masked+bfv, 3"])
def test_every_strategy_of_few_lies_against_the_smallest_cohorts(cohort: str) -> None:
    """With two lies where it is quick; who has the key holder on its side sees all that it sees alone."""
    if cohort in list(EXHAUSTIVE)[:2]:
        assert exhausted(cohort, 2) > 100
    else:
        assert exhausted(cohort, 1) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("cohort", EXHAUSTIVE)
def test_every_strategy_of_three_lies_against_the_smallest_cohorts(cohort: str) -> None:
    fewest = 30 if "no lies" in cohort else 100  # who only listens has dropouts alone to choose
    assert exhausted(cohort, 3 if "3" in cohort.split(",")[1] else 2) > fewest


def lied(lies: dict[int, int]) -> Choose:
    """Honest but at the numbered choices."""
    asked = iter(range(10**6))
    return lambda among: lies.get(next(asked), 0) % among


@pytest.mark.parametrize("max_examples", [20, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cohort", RANDOM)
def test_random_strategies_against_larger_cohorts(cohort: str, max_examples: int) -> None:
    stage = RANDOM[cohort]()

    @settings(max_examples=max_examples, database=None)
    @given(lies=LIES)
    def no_strategy_leaks(lies: dict[int, int]) -> None:
        played(stage, lied(lies))

    no_strategy_leaks()


@pytest.mark.parametrize("cohort", [*EXHAUSTIVE, *RANDOM])
def test_the_oracle_sees_the_total_that_an_honest_server_gets(cohort: str) -> None:
    """Else it would be blind, and the laws hold for nothing."""
    stage = {**EXHAUSTIVE, **RANDOM}[cohort]()
    combinations = played(stage, honest).span().combinations()  # nothing follows from masks that are all known
    totals = [dict(found.vectors) for found in combinations if found.vectors]
    for number in range(len(stage.sums)):
        assert dict.fromkeys(((party, number) for party in stage.clients), 1) in totals
    assert len(totals) == len(stage.sums)


# Plants: one check less, and the same search finds what it let through

Patch = pytest.MonkeyPatch


def answers_twice(patch: Patch) -> None:
    """A client forgets that it has revealed, and accepts another survivor set."""
    receive, forget = MaskedClient.receive, MaskedClient._forget

    def receive_again(self: MaskedClient, message: bytes) -> bytes:
        answer = receive(self, message)
        if self._kept.state is ClientState.DONE:
            self._kept.state = ClientState.INPUT_SENT
        return answer

    def forget_aborted(self: MaskedClient, state: ClientState) -> None:
        if state is ClientState.ABORTED:
            forget(self, state)

    patch.setattr(MaskedClient, "receive", receive_again)
    patch.setattr(MaskedClient, "_forget", forget_aborted)


def reveals_both(patch: Patch) -> None:
    def both(self: MaskedClient) -> Any:
        revealed = UnmaskShares(
            mask_key_shares={party: pair[:SHARE_BYTES] for party, pair in self._own.shares.items()},
            self_mask_shares={party: pair[SHARE_BYTES:] for party, pair in self._own.shares.items()},
        )
        return revealed.to_payload(), ()

    patch.setattr(MaskedClient, "_revealed", both)


def any_threshold(patch: Patch) -> None:
    patch.setattr(MaskedSum, "_check_threshold", lambda self: None)


def unbound_masks(patch: Patch) -> None:
    """Masks depend on no session."""
    derive, seed = mask_stream.derive_key, masked_client.pairwise_seed
    patch.setattr(mask_stream, "derive_key", lambda secret, label, digest, *context: derive(secret, label, *context))
    patch.setattr(masked_client, "pairwise_seed", lambda own, peer, digest: seed(own, peer, b""))


def unsigned_rosters(patch: Patch) -> None:
    patch.setattr(masked_client, "keys_are_signed", lambda config, keys, party: True)


def no_self_mask(patch: Patch) -> None:
    """What the double mask of Bonawitz et al. is for: an upload that comes late, after its sender's key was rebuilt."""
    masks = MaskedClient._masks
    patch.setattr(MaskedClient, "_masks", lambda self: masks(self)[1:])


def helper_forgets_that_it_failed(patch: Patch) -> None:
    """A helper goes on with a sum that it signed to have failed."""
    sign = CommitteeHelper._sign_survivors

    def forget(self: CommitteeHelper, reader: Reader) -> bytes:
        kept, key = replace(self._kept), self._key
        answer = sign(self, reader)
        if self._kept.due is None:
            self._kept, self._key = kept, key
        return answer

    patch.setattr(CommitteeHelper, "_sign_survivors", forget)


def key_holder_forgets_that(state: KeyHolderState) -> Callable[[Patch], None]:
    """A key holder keeps its key where it should erase it."""

    def weaken(patch: Patch) -> None:
        forget = KeyHolder._forget
        patch.setattr(KeyHolder, "_forget", lambda self, now: None if now is state else forget(self, now))

    return weaken


def unsigned_seeds(patch: Patch) -> None:
    patch.setattr(CommitteeHelper, "_check_signed", lambda self, client, entry: None)


def a_set_left_out(patch: Patch) -> None:
    """A client adds no mask of the last set."""
    start = CommitteeClient.start

    def without(self: CommitteeClient) -> bytes:
        mask = committee_client.masked_pieces
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                committee_client,
                "masked_pieces",
                lambda layout, vector, masks, digest: mask(layout, vector, masks[:-1], digest),
            )
            return start(self)

    patch.setattr(CommitteeClient, "start", without)


def one_seed_for_all(patch: Patch) -> None:
    """A client draws one seed for all sets."""

    class Shared(CommitteeClient):
        def start(self) -> bytes:
            drawn = self._entropy(32)
            self._entropy = lambda n_bytes: drawn[:n_bytes]
            return super().start()

    patch.setattr(committee_protocol, "CommitteeClient", Shared)


def helpers_do_not_agree(patch: Patch) -> None:
    """Helpers answer before a quorum signed the same survivors."""
    patch.setattr(CommitteeHelper, "_check_certificate", lambda self, certificate: None)


def small_quorum(patch: Patch) -> None:
    """A quorum that two sets can have."""
    patch.setattr(ReplicatedSharing, "quorum", property(lambda self: len(self.helpers) // 2))


def two_sets(patch: Patch) -> None:
    """Helpers answer for a second survivor set."""
    receive, fix = CommitteeHelper.receive, CommitteeHelper._fix

    def remember(self: CommitteeHelper, survivors: tuple[int, ...]) -> None:
        whole = getattr(self, "_whole", None) or (self._kept.seeds, self._kept.seed_digests)
        self._whole = self._kept.seeds, self._kept.seed_digests = whole  # type: ignore[attr-defined]
        fix(self, survivors)

    def due_again(self: CommitteeHelper, message: bytes) -> bytes:
        type_ = MessageType(message[5])
        if type_ in (MessageType.SURVIVOR_SET, MessageType.SET_CERTIFICATE) and hasattr(self, "_whole"):
            self._kept.due = type_
        return receive(self, message)

    patch.setattr(CommitteeHelper, "_fix", remember)
    patch.setattr(CommitteeHelper, "receive", due_again)


def nobody_counts(patch: Patch) -> None:
    """Helpers take masks off one client's vector."""
    patch.setattr(CommitteeHelper, "_check_number", lambda self, survivors, known: None)


def nothing(patch: Patch) -> None:
    """Nothing is switched off: the server may do this today, and the threat model says so."""


def two(make: Callable[..., MaskedSum], **options: bool) -> Callable[[], Stage]:
    return lambda: Stage(tuple(make(4, number=k, threshold=3) for k in TWO_SUMS), **options)


def four() -> Stage:
    return Stage((masked(4, threshold=3),), frozenset({4}))


def helped(*colluders: int, helpers: int = 2) -> Callable[[], Stage]:
    return lambda: Stage((committee(4, survivors=3, helpers=helpers),), frozenset(colluders))


PLANTS: dict[str, tuple[Callable[[Patch], None], Callable[[], Stage], int]] = {
    "clients accept two survivor sets": (answers_twice, four, 2),
    "clients reveal both kinds of share": (reveals_both, four, 0),
    "a threshold below the bound": (any_threshold, lambda: Stage((masked(4, threshold=2),)), 2),
    "masks reused between sessions": (unbound_masks, two(masked, same_tape=True), 0),
    "rosters are not checked": (unsigned_rosters, lambda: Stage((masked(3, threshold=2),)), 2),
    "no identities, and the server lies": (nothing, lambda: Stage((masked(3, threshold=2, identities=False),)), 2),
    "no mask of one's own": (no_self_mask, four, 1),
    "bfv, and the server lies": (nothing, lambda: over_bfv(unmasked(3)), 2),
    "the same rows in two sums": (nothing, two(masked, same_rows=True), 1),
    "a helper answers for two survivor sets": (two_sets, helped(101), 2),
    "a helper goes on with a sum that failed": (helper_forgets_that_it_failed, helped(101, helpers=4), 1),
    "a key holder decrypts a sum that failed": (
        key_holder_forgets_that(KeyHolderState.FAILED),
        lambda: over_bfv(unmasked(3, identities=True)),
        1,
    ),
    "a key holder certifies what it decrypted": (
        key_holder_forgets_that(KeyHolderState.DONE),
        lambda: over_bfv(unmasked(3, identities=True)),
        1,
    ),
    "helpers answer before they agree": (helpers_do_not_agree, helped(101, helpers=4), 2),
    "a quorum that two sets can have": (small_quorum, helped(101, helpers=4), 2),
    "a set of helpers left out": (a_set_left_out, helped(101, helpers=4), 0),
    "a helper counts nobody": (nobody_counts, helped(4), 2),
    "a helper does not check who drew a seed": (unsigned_seeds, helped(4), 2),
    "one seed for all helpers": (one_seed_for_all, helped(102), 0),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_weakness_is_found(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken, make, lies = PLANTS[plant]
    with suppress(ConfigurationError):
        played(make(), honest)
    weaken(monkeypatch)
    with pytest.raises(LeakError):
        strategies(partial(played, make()), lies)


class Cut(Masked):
    """A server that cuts client 4 off: it names neighbours of it dropouts, and withholds the others' shares from it."""

    TARGET = 4

    def __init__(self, stage: Stage, n_dropouts: int) -> None:
        Masked.__init__(self, stage, honest)
        self._dropouts[0] = frozenset(self._config(0).neighbours(self.TARGET)[:n_dropouts])

    def _delivery(self, number: int, party: int) -> bytes:
        if party == self.TARGET:
            told = self._rosters[number, party]
            self._rosters[number, party] = {peer: told[peer] for peer in told.keys() & self._dropouts[number]}
        return Masked._delivery(self, number, party)


CUTS: dict[str, tuple[Callable[[], MaskedSum], int, str, Callable[[tuple[int, ...]], bool]]] = {
    "the shares of all survivors are withheld from it": (
        lambda: sparse(30, 16, 7, dropouts=6),
        6,
        "_check_peers",
        lambda found: found == (Cut.TARGET,),
    ),
    "all its neighbours are named dropouts": (
        lambda: sparse(60, 20, 9, dropouts=20, correctness_bits=1),
        20,
        "_check_parts",
        lambda found: Cut.TARGET not in found and len(found) == 39,
    ),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_client_is_cut_off_only_where_others_do_not_check(cut: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, n_dropouts, check, is_found = CUTS[cut]

    def found() -> list[tuple[int, ...]]:
        attack = Cut(Stage((make(),)), n_dropouts)
        attack.play()
        return [combination.clients for combination in attack.span().combinations()]

    assert not found()
    monkeypatch.setattr(MaskedClient, check, lambda self, *_: None)
    assert any(map(is_found, found()))


def test_one_helper_more_than_stated_opens_a_vector_of_an_honest_server() -> None:
    played(helped(101, helpers=4)(), honest)
    with pytest.raises(LeakError):
        played(helped(101, 104, helpers=4)(), honest)


def test_who_chooses_the_seed_of_a_graph_chooses_whom_to_surround() -> None:
    """Few bits, and a seed that the server tries out: one of the first opens a client, and not every one does."""
    promised = Assumptions(corruption=0.2, dropout=0.0, security_bits=0.01)

    def leaks(seed: int) -> bool:
        config = MaskedSum.planned(
            layout=LAYOUT,
            clients=tuple(range(1, 21)),
            session_id=bytes(16),
            assumptions=promised,
            graph_seed=bytes([seed]) * 16,
        )
        assert config.degree is not None
        attack = Masked(Stage((config,), frozenset({1, 2, 3, 4}), may_lie=False), honest)
        attack.play()
        return attack.leak() is not None

    tried = [leaks(0)]
    while len(set(tried)) < 2 and len(tried) < 64:
        tried.append(leaks(len(tried)))
    assert set(tried) == {False, True}


def test_a_combination_that_the_vectors_do_not_bear_out_is_no_finding() -> None:
    """The oracle's own check: words that are not what the equation says make a play fail, and not pass."""
    words = np.arange(3, dtype=np.uint64)
    span = Span([Equation({(1, 0): 1}, {b"a": 2}, words), Equation({(2, 0): 3}, {b"a": -4}, words + np.uint64(1))])
    (found,) = span.combinations()
    same = span.of_at_most(2)
    assert same is not None
    assert same.vectors == found.vectors
    assert span.of_at_most(1) is None
    assert found.vectors == {(1, 0): 2, (2, 0): 3}
    assert (found.words == 3 * words + np.uint64(1)).all()
