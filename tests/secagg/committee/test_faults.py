"""Committees under faults: within the bound the exact total and the culprit by name, beyond it no wrong total.

Four helpers of whom one may be corrupt, the smallest committee that bears one; restarts at every step are in the
contract, what a server learns in ``tests/leakage``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from support.by_hand import ByHand, forged
from support.parties import key_of, signed

from secagg import CommitteeSum, InOneProcess, Layout
from secagg.committee.messages import SEEDS_LABEL, SET_LABEL, SetCertificate, number, set_hash
from secagg.committee.seed_sharing import ReplicatedSharing, resolve_complaints
from secagg.errors import (
    HelperDisputeError,
    HelperMissingError,
    RemoteProtocolError,
    SecureSumError,
    TooFewSurvivorsError,
)
from secagg.wire import MessageType as T
from secagg.wire import Reader, write_parties

LAYOUT = Layout.of([("wide", 3, 2**40), ("narrow", 2, 90)])
CLIENTS = (1, 2, 3, 4, 5, 6)
VECTORS = {party: np.array([party, -party, 2**30 * party, 1, -1]) for party in CLIENTS}


def committee(m: int = 4, f: int = 1, *, identities: bool = True) -> InOneProcess:
    parties = CommitteeSum.generate(
        layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), n_helpers=m, corrupt_helpers=f, min_survivors=3
    )
    return signed(parties) if identities else parties


# What a helper may do wrong: (the message that it garbles or never sends, what it says instead)

Fault = tuple[T, Callable[[Any], Any] | None]


def other_bytes(hashes: Any) -> Any:
    return bytes(byte ^ 1 for byte in hashes)


def other_sums(sums: Any) -> Any:
    return replace(sums, sums={place: bytes(len(vector)) for place, vector in sums.sums.items()})


FAULTS: dict[str, Fault] = {
    "never there": (T.SEED_COMPLAINTS, None),
    "away when survivors are signed": (T.SET_SIGNATURE, None),
    "away when sums are hashed": (T.SUM_HASHES, None),
    "away when sums are sent": (T.MASK_SUM, None),
    "complains of one": (T.SEED_COMPLAINTS, lambda _: write_parties((2,))),
    "complains of all": (T.SEED_COMPLAINTS, lambda _: write_parties(CLIENTS)),
    "signs nothing": (T.SET_SIGNATURE, lambda _: bytes(64)),
    "hashes other sums": (T.SUM_HASHES, other_bytes),
    "sends other sums": (T.MASK_SUM, other_sums),
}


def play(parties: InOneProcess, faults: dict[int, str]) -> tuple[ByHand, list[RemoteProtocolError]]:
    """A whole sum in which these helpers are at fault, and what the server refused. Whoever was away stays away."""
    hand, refused, gone = ByHand(parties, VECTORS), list[RemoteProtocolError](), set[int]()
    while hand.server.result is None:
        for party, message in list(hand.said.items()):
            if party in faults:
                type_, lie = FAULTS[faults[party]]
                if message[5] == type_:
                    if lie is None:
                        gone.add(party)
                    else:
                        hand.said[party] = forged(message, lie(hand.read(message)))
            if party in gone:
                del hand.said[party]
                continue
            try:
                hand.server.receive(party, hand.said.pop(party))
            except RemoteProtocolError as error:
                refused.append(error)
        hand.requests = dict(hand.server.close_round())
        hand.requests = {party: request for party, request in hand.requests.items() if party not in gone}
        said = {}
        for party, request in hand.requests.items():
            try:
                said[party] = hand.sessions[party].receive(request)
            except RemoteProtocolError:
                assert party in faults, "an honest helper refuses no honest server"
        hand.said, hand.requests = said, {}
    return hand, refused


def played(parties: InOneProcess, faults: dict[int, str]) -> tuple[ByHand | None, SecureSumError | None]:
    """How it ended: with a total, or with a reason why not."""
    try:
        return play(parties, faults)[0], None
    except (HelperMissingError, HelperDisputeError, TooFewSurvivorsError) as stopped:
        return None, stopped


def is_exact(hand: ByHand) -> bool:
    survivors = hand.server.result.survivors
    return bool((hand.server.result.total == sum(VECTORS[party] for party in survivors)).all())


@pytest.mark.parametrize("identities", [True, False])
@pytest.mark.parametrize(
    ("m", "f", "places"),
    [
        (4, 1, (0, 1, 2, 3)),
        (6, 1, (0, 5)),
        (7, 2, (0, 6)),
        pytest.param(6, 1, (1, 2, 3, 4), marks=pytest.mark.slow),
        pytest.param(7, 2, (1, 2, 3, 4, 5), marks=pytest.mark.slow),
    ],
)
def test_any_one_fault_of_any_helper_is_borne_and_a_lie_is_named(
    m: int, f: int, places: tuple[int, ...], identities: bool
) -> None:
    for at, fault in product(places, FAULTS):
        parties = committee(m, f, identities=identities)
        culprit = parties.helpers[at]
        hand, refused = play(parties, {culprit: fault})
        result = hand.server.result
        assert is_exact(hand)
        assert result.survivors == tuple(p for p in CLIENTS if p != 2 or fault != "complains of one")
        if fault == "hashes other sums":
            assert result.malicious_parties(f) == (culprit,)
        elif fault in ("sends other sums", "signs nothing") and identities:
            assert {error.peer for error in refused} <= {culprit}
            assert refused or fault == "sends other sums", "who was not asked for a sum sent none"
        if "complains" in fault:
            assert {helper for _, helper in result.complaints} == {culprit}


@pytest.mark.parametrize("pairs", [((1, 3),), pytest.param(tuple(combinations(range(4), 2)), marks=pytest.mark.slow)])
def test_any_two_faults_of_four_helpers_give_the_exact_total_or_a_name(pairs: tuple[tuple[int, int], ...]) -> None:
    """One more than is borne: never a wrong total, and whoever is named is at fault or in dispute with who is."""
    released = 0
    for pair, faults in product(pairs, product(FAULTS, repeat=2)):
        parties = committee()
        culprits = {parties.helpers[at]: fault for at, fault in zip(pair, faults, strict=True)}
        if all(fault == "hashes other sums" for fault in faults):
            continue  # two that lie alike: below
        hand, stopped = played(parties, culprits)
        if hand is not None:
            assert is_exact(hand)
            released += 1
        elif isinstance(stopped, HelperMissingError):
            assert set(stopped.missing) & culprits.keys()
        elif isinstance(stopped, HelperDisputeError):
            assert all(culprits.keys() & set(dispute) for dispute in stopped.disputes)
        else:
            assert faults == ("complains of all", "complains of all"), "f + 1 helpers are believed"
    assert released, "faults that come after one's part was done hurt nobody"


def test_one_away_and_one_lying_of_four_name_the_pair_and_of_seven_give_the_exact_total() -> None:
    parties = committee()
    away, liar = parties.helpers[:2]
    with pytest.raises(HelperDisputeError, match="2 helpers must give the same sum of masks") as caught:
        play(parties, {away: "never there", liar: "hashes other sums"})
    assert all(liar in pair and away not in pair for pair in caught.value.disputes)
    parties = committee(7, 2)
    away, liar = parties.helpers[:2]
    hand, _ = play(parties, {away: "never there", liar: "hashes other sums"})
    assert is_exact(hand)
    assert hand.server.result.malicious_parties(2) == (liar,)


def test_two_that_lie_alike_are_one_more_than_four_helpers_notice() -> None:
    """With ``detects_malicious_helpers`` of them together the total is right, with one more it need not be."""
    parties = committee()
    assert parties.protocol.guarantee.detects_malicious_helpers == 1
    for liars, wrong in ((1, False), (2, True)):
        hand = ByHand(parties, VECTORS)
        for helper in parties.helpers[:liars]:
            session = hand.sessions[helper]
            session._sum = lambda place, honest=session._sum: honest(place) if place else [bytes(LAYOUT.wire_bytes)]
        if wrong:
            with pytest.raises(SecureSumError, match="beyond the public bound"):
                hand.finish()
        else:
            hand.finish()
            assert is_exact(hand)


# Survivor sets


def is_answered(hand: ByHand, helpers: tuple[int, ...], certificate: SetCertificate) -> bool:
    """Whether a survivor set gets what it is for: an honest helper's hashes; of nobody, a proof that the sum failed."""
    if not certificate.survivors:
        with contextlib.suppress(RemoteProtocolError):
            hand.config.check_failure(certificate.to_payload())
            return True
    for helper in helpers:
        with contextlib.suppress(RemoteProtocolError):
            hand.sessions[helper].receive(hand.framed(T.SET_CERTIFICATE, certificate, helper))
            return True
    return False


def split(parties: InOneProcess, n_colluding: int, sets: tuple[tuple[int, ...], ...]) -> Iterator[tuple[ByHand, int]]:
    """A server that proposes one set to some honest helpers and the second to the others, in every way; colluding
    helpers sign both. Of each way, how many sets were answered.
    """
    config: Any = parties.protocol
    honest, colluding = parties.helpers[n_colluding:], parties.helpers[:n_colluding]
    for told in product(range(2), repeat=len(honest)):
        hand = ByHand(parties, VECTORS)
        hand.until(T.SURVIVOR_SET)
        said = hand.server._kept.seed_digests
        hashes = [set_hash(config.digest, {party: said[party] for party in of}) for of in sets]
        signatures = [{h: key_of(h).sign(SET_LABEL, of_set) for h in colluding} for of_set in hashes]
        for helper, which in zip(honest, told, strict=True):
            proposal = hand.framed(T.SURVIVOR_SET, write_parties(sets[which]), helper)
            signatures[which][helper] = hand.read(hand.sessions[helper].receive(proposal))
            other = hand.framed(T.SURVIVOR_SET, write_parties(sets[1 - which]), helper)
            with pytest.raises(RemoteProtocolError, match="fixes one survivor set a session"):
                hand.sessions[helper].receive(other)
        certificates = (SetCertificate(survivors=sets[which], signatures=signatures[which]) for which in range(2))
        yield hand, sum(is_answered(hand, honest, certificate) for certificate in certificates)


@pytest.mark.parametrize("second", [CLIENTS[1:], ()], ids=["all but one", "nobody: it failed"])
@pytest.mark.parametrize(("m", "f"), [(4, 1), (5, 2), pytest.param(5, 1, marks=pytest.mark.slow)])
def test_no_two_survivor_sets_are_answered_while_as_many_collude_as_stated(
    m: int, f: int, second: tuple[int, ...]
) -> None:
    """However a server splits the honest ones; with one colluder more some split gets answers for both."""
    sets = (CLIENTS, second)
    for n_colluding in range(f + 1):
        assert max(answered for _, answered in split(committee(m, f), n_colluding, sets)) <= 1
    beyond = 2 * ReplicatedSharing(tuple(range(m)), f).quorum - m  # an honest helper more than two quorums share
    assert max(answered for _, answered in split(committee(m, f), beyond, sets)) == 2


@pytest.mark.parametrize("m", range(1, 9))
def test_the_bound_on_helpers_that_may_be_away(m: int) -> None:
    """m >= max(f + 2 d + 1, 2 f + d + 1), and no more, wherever seeds have f + 1 holders."""
    for f in range((m + 1) // 2):
        bears = m - ReplicatedSharing(tuple(range(m)), f).needed(signing=True)
        holds = [d for d in range(m) if m >= max(f + 2 * d + 1, 2 * f + d + 1)]
        assert bears == max(holds)


# A sum that failed

OTHER_SESSION = bytes(15) + b"\1"


def failed(hand: ByHand, helpers: tuple[int, ...]) -> bytes:
    """What a server has after it asked these helpers to certify that the sum failed; whoever refuses is left out."""
    failure = hand.config.failure(secrets=hand.parties.of_party(0))
    for helper in helpers:
        with contextlib.suppress(RemoteProtocolError):
            failure.receive(helper, hand.sessions[helper].receive(failure.requests()[helper]))
    return bytes(failure.proof)


@pytest.mark.parametrize("due", [T.COMMITTEE_INPUT, T.SEED_DELIVERY, T.SEED_COMPLAINTS, T.SURVIVOR_SET])
def test_a_quorum_proves_that_a_sum_failed_and_takes_no_mask_off_any_more(due: T) -> None:
    """Wherever it stopped before helpers agreed, a server that has lost all else included; one helper is away."""
    parties = committee()
    hand = ByHand(parties, VECTORS)
    hand.until(due)
    requests, there = dict(hand.requests), parties.helpers[1:]
    proof = failed(hand, there)
    parties.protocol.check_failure(proof)
    for helper in there:
        held = hand.sessions[helper].snapshot()
        hand.sessions[helper] = parties.helper(helper)
        hand.sessions[helper].restore(held)
        nobody = SetCertificate.read(Reader(memoryview(proof), peer=0), hand.config)
        lies = [(T.SURVIVOR_SET, write_parties(CLIENTS)), (T.SET_CERTIFICATE, nobody)]
        for message in (*([requests[helper]] if requests else []), *(hand.framed(*lie, helper) for lie in lies)):
            with pytest.raises(RemoteProtocolError, match="nothing is due"):
                hand.sessions[helper].receive(message)
        assert hand.sessions[helper]._kept.seeds == {}


def test_once_survivors_are_agreed_nobody_certifies_that_the_sum_failed() -> None:
    """Not even before the certificate went out; and one that is there to prove it by itself has its total."""
    hand = ByHand(committee(), VECTORS)
    hand.until(T.SET_SIGNATURE)
    assert failed(hand, hand.parties.helpers) == b""
    assert hand.finishes_exactly() == CLIENTS


def test_nothing_else_proves_that_a_sum_failed() -> None:
    parties = committee()
    config: Any = parties.protocol
    helpers, agreed = parties.helpers, set_hash(config.digest, {})
    good = {helper: key_of(helper).sign(SET_LABEL, agreed) for helper in helpers[:3]}
    elsewhere = {helper: key_of(helper).sign(SET_LABEL, set_hash(OTHER_SESSION, {})) for helper in helpers}
    somebody = {helper: key_of(helper).sign(SET_LABEL, set_hash(config.digest, {1: bytes(32)})) for helper in helpers}
    proof = SetCertificate(survivors=(), signatures=good).to_payload()
    config.check_failure(proof)
    lies = [
        *(SetCertificate(survivors=(), signatures=of).to_payload() for of in ({}, elsewhere, somebody)),
        *(SetCertificate(survivors=of, signatures=good).to_payload() for of in (CLIENTS, (1,))),
        SetCertificate(survivors=(), signatures=dict(list(good.items())[:2])).to_payload(),
        SetCertificate(survivors=(), signatures=dict(zip((2, 3, 4), good.values(), strict=True))).to_payload(),
        *(proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :] for at in range(len(proof))),
        number(0) + number(3) + 3 * proof[8 : 8 + 68],
        *(b"", proof[:-1], proof + b"\0", bytes(len(proof)), b"\xff" * len(proof)),
    ]
    for lie in lies:
        with pytest.raises(RemoteProtocolError):
            config.check_failure(lie)
    unsigned: Any = committee(identities=False).protocol
    assert unsigned.failure() is None
    for protocol in (unsigned, replace(config, session_id=OTHER_SESSION), replace(config, corrupt_helpers=3)):
        with pytest.raises(RemoteProtocolError, match="have signed that it has no survivors"):
            protocol.check_failure(proof)


# Clients


def cheated(hand: ByHand, client: int, helpers: tuple[int, ...]) -> bytes:
    """The upload of a client that seals some helpers something else, and signs that."""
    upload = hand.read(hand.said[client])
    boxes = upload.boxes | {helper: bytes(len(upload.boxes[helper])) for helper in helpers}
    changed = replace(upload, boxes=boxes)
    entry = changed.entry(helpers[0])
    said = (hand.config.digest, number(client), entry.commitments, entry.box_hashes)
    return forged(hand.said[client], replace(changed, signature=key_of(client).sign(SEEDS_LABEL, *said)))


@pytest.mark.parametrize("n_cheated", [1, 2, 3, 4])
def test_a_client_that_cheats_helpers_is_left_out_and_named(n_cheated: int) -> None:
    parties = committee()
    hand = ByHand(parties, VECTORS)
    cheats = parties.helpers[:n_cheated]
    hand.said[2] = cheated(hand, 2, cheats)
    assert hand.finishes_exactly() == (1, 3, 4, 5, 6)
    assert hand.server.result.complaints == tuple((2, helper) for helper in cheats)


def test_seeds_that_are_not_those_committed_to_are_complained_of() -> None:
    """A client that gives two holders of one seed two different ones: each opens, and fits no commitment."""
    parties = committee()
    hand, twin = ByHand(parties, VECTORS), ByHand(parties, VECTORS)
    upload, other = hand.read(hand.said[2]), twin.read(twin.said[2])
    mixed = replace(upload, boxes=upload.boxes | {parties.helpers[0]: other.boxes[parties.helpers[0]]})
    entry = mixed.entry(parties.helpers[0])
    said = (hand.config.digest, number(2), entry.commitments, entry.box_hashes)
    hand.said[2] = forged(hand.said[2], replace(mixed, signature=key_of(2).sign(SEEDS_LABEL, *said)))
    assert hand.finishes_exactly() == (1, 3, 4, 5, 6)
    assert hand.server.result.complaints == ((2, parties.helpers[0]),)


def test_a_helper_is_believed_about_few_clients_alone() -> None:
    """One helper may lie: what it says alone counts for a few; what one more says with it counts for all."""
    heard = {"corrupt": 1, "most_each": 2}
    assert resolve_complaints({7: (), 8: (1, 2)}, **heard) == ({1, 2}, frozenset())
    assert resolve_complaints({7: (), 8: (1, 2, 3)}, **heard) == (frozenset(), {8})
    assert resolve_complaints({7: (1, 2, 3, 4), 8: (1, 2, 3)}, **heard) == ({1, 2, 3, 4}, frozenset())


def test_a_larger_cohort_loses_the_part_of_the_sum_that_a_cheating_client_is_in() -> None:
    clients = tuple(range(1, 71))
    parties = signed(
        CommitteeSum.generate(
            layout=LAYOUT, clients=clients, session_id=bytes(16), n_helpers=4, corrupt_helpers=1, min_survivors=3
        )
    )
    hand = ByHand(parties, {party: np.array([party, -party, 1, 0, 0]) for party in clients})
    hand.said[2] = cheated(hand, 2, parties.helpers[:2])
    assert hand.finishes_exactly() == tuple(party for party in clients if party % 32 != 2)
    assert {client for client, _ in hand.server.result.complaints} == {2}
