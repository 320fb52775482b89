"""Checks that notice faults in sums, noise, stores, ledgers and learners, beside the attacks of the audit.

Each check is given what may be faulty, and returns whether it alarms.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analytic.afl import AFL
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic_secagg import federate
from analytic_secagg.modes import MODES, Mode, fresh_identity
from analytic_secagg.privacy import PrivacyPlan
from secagg import (
    ClientSession,
    DurableClient,
    InOneProcess,
    Layout,
    PartyId,
    Receipt,
    ReceiptedSum,
    ReceiptError,
    SecureSumError,
    Store,
    new_session_id,
    run_in_memory,
)
from secagg.committee.messages import SetCertificate
from secagg.config import SERVER
from secagg.dp import Budget, BudgetExceededError, Ledger, guarantee
from secagg.encryption.key_holder import write_request
from secagg.in_memory import Envelope
from secagg.masked.messages import UnmaskRequest
from secagg.wire import MessageType, message_type, payload_of, write_parties
from simulations.audit.attack import Expectation
from simulations.audit.catalogue import ATTACKS
from simulations.audit.two_worlds import Outcome, two_worlds
from support import confirmation, drawn_secrets, query_logs, survivor_sets
from support.benches import small_bench
from support.faulty_noise import spoiled_noise
from support.faulty_sums import Faulty, FaultyMode, Kept, Sessions, faulty
from support.memory_store import MemoryStore
from support.parties import resealed, signed
from support.seeded_system import seeded_system

CLIENTS = (1, 2, 3, 4, 5)
LAYOUT = Layout.of([("few", 3, 1000)])
VECTORS = {party: np.array([party, -party, 150 + party]) for party in CLIENTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An attack or a check that notices faults.

    Args:
        name: of the attack, with the mode, or of the check.
        notices: whether it alarms where a fault is planted; given what the fault's ``plant`` returns.
        honest: the same without a fault.
    """

    name: str
    notices: Callable[[Any], bool]
    honest: Callable[[], Any]


OF_TESTS = (confirmation.ATTACK, drawn_secrets.ATTACK, query_logs.ATTACK, survivor_sets.ATTACK)
PLAYED = ATTACKS | {one.name: one for one in OF_TESTS}


def attack(name: str, mode: str) -> Check:
    """Return the check that plays an attack, of the audit or the tests, against a mode that must hide from it."""

    def alarmed(planted: FaultyMode) -> bool:
        bench = replace(small_bench(1), clients=7, sessions=2, entropy=planted.entropy, taping=name == "drawn_secrets")
        assert PLAYED[name].expected(planted) is Expectation.HIDDEN
        trials = 6 if name == "confirmation" else 3  # it wins 4 times of 5
        return PLAYED[name].play(bench, planted, trials).leaked

    return Check(name=f"{name}, {mode}", notices=alarmed, honest=partial(faulty, mode))


def made(mode: Mode, layout: Layout = LAYOUT, **options: Any) -> InOneProcess:
    """Return all parties of a small sum."""
    return mode.in_one_process(layout=layout, clients=CLIENTS, session_id=new_session_id(), **options)


def is_inexact(mode: FaultyMode) -> bool:
    """Return whether a total is not the sum over those whose vectors came, or none is released; one client is lost."""
    parties = made(mode)
    sent = parties.protocol.guarantee.messages_before_vector
    for lost in ({}, {4: sent}):
        try:
            result = run_in_memory(parties, VECTORS, dropouts=lost).result
        except SecureSumError:
            return True
        there = tuple(party for party in CLIENTS if party not in lost)
        if result.survivors != there or not np.array_equal(result.total, sum(VECTORS[party] for party in there)):
            return True
    return False


def answers_again(mode: FaultyMode) -> bool:
    """Return whether anybody answers for other survivors when its sum is over, or a key holder for one vector."""
    kept, asked = Kept(made(mode)), list[Envelope]()
    run_in_memory(kept, VECTORS, record=lambda one: asked.append(one) if one.sender == SERVER else None)
    for one in asked:
        others = CLIENTS[1:] if one.recipient != 1 else CLIENTS[:-1]
        (left,) = set(CLIENTS) - set(others)
        questions: dict[MessageType, Callable[[], bytes]] = {
            MessageType.UNMASK_REQUEST: UnmaskRequest(dropouts=(left,)).to_payload,
            MessageType.SET_CERTIFICATE: SetCertificate(survivors=others, signatures={}).to_payload,
            MessageType.DECRYPTION_REQUEST: lambda of=one, survivors=others: _asking(of, survivors),  # type: ignore[misc]
        }
        kind = message_type(one.message)
        if kind in questions and _is_answered(kept.sessions[one.recipient], resealed(one.message, questions[kind]())):
            return True
        if kind is MessageType.DECRYPTION_REQUEST:
            fresh = kept.parties.helper(one.recipient)
            if _is_answered(fresh, resealed(one.message, _asking(one, CLIENTS[:1]))):
                return True
    return False


def _asking(one: Envelope, survivors: tuple[PartyId, ...]) -> bytes:
    carried = bytes(payload_of(one.message))[len(write_parties(CLIENTS)) :]
    return write_request(survivors, carried)


def _is_answered(session: ClientSession, message: bytes) -> bool:
    try:
        return session.receive(message) is not None
    except SecureSumError:
        return False


def keeps_secrets(mode: FaultyMode) -> bool:
    """Return whether a stored session holds a secret of a sum that is over."""
    kept = Kept(made(mode))
    run_in_memory(kept, VECTORS)
    return any(drawn in session.snapshot() for session in kept.sessions.values() for drawn in kept.drawn - {b""})


def is_refused(plant: Callable[[], Any]) -> bool:
    """Return whether the library itself refuses, when parties are made or when they speak."""
    try:
        return bool(plant())
    except SecureSumError:
        return True


def on_the_way(kind: MessageType, change: Callable[[InOneProcess, bytes], bytes]) -> Callable[[], Any]:
    """Return a signed sum whose first message of a kind is changed on its way by somebody with the server's key."""

    def plant() -> Any:
        parties, left = made(MODES["masked"], identity_of=fresh_identity), [kind]

        class Changing:
            def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
                for one in envelopes:
                    if message_type(one.message) in left:
                        left.clear()
                        yield replace(one, message=change(parties, one.message))
                    else:
                        yield one

        return run_in_memory(parties, VECTORS, network=Changing()).refused

    return lambda: plant


def by_server(parties: InOneProcess, message: bytes, payload: bytes) -> bytes:
    """Return the message with another payload, signed by the server."""
    identity = parties.of_party(SERVER).identity
    assert identity is not None
    return resealed(message, payload, {SERVER: identity})


def says_else(store: Callable[[], Store]) -> bool:
    """Return whether a client that is restored from its store says something else than before; it may refuse."""
    protocol, own = made(MODES["masked"]).protocol, store()

    def restored() -> DurableClient:
        return DurableClient(own, bytes(32), protocol.client(1, VECTORS[1]))

    server, said = protocol.server(), restored().start()
    with suppress(SecureSumError):
        if restored().start() != said:
            return True
    assert said is not None
    server.receive(1, said)
    for party in CLIENTS[1:]:
        server.receive(party, protocol.client(party, VECTORS[party]).start() or b"")
    request = server.close_round()[1]
    with suppress(SecureSumError):
        return restored().receive(request) != restored().receive(request)
    return False


def is_spent_twice(of: Callable[[Path], Ledger]) -> bool:
    """Return whether a budget for one release pays for two."""
    plan = PrivacyPlan(epsilon=1.0, min_noise_shares=3, colluders=1)
    learner = AFL(n_features=2, n_targets=2, feature_format=RowFormat(integer_bits=2, fraction_bits=4), max_rows=64)
    release = plan.apply(learner).releases[-1]
    enough = 1.01 * guarantee([release], plan.delta).epsilon
    terms = Budget(epsilon=enough, delta=plan.delta, unit=plan.unit, adjacency=plan.adjacency, population="a try")
    with tempfile.TemporaryDirectory() as folder:
        Ledger.create(Path(folder) / "ledger", terms)
        try:
            for _ in range(2):
                of(Path(folder) / "ledger").charge(release, session_id=new_session_id())
        except BudgetExceededError:
            return False
    return True


def receipt_is_wrong(sessions: Sessions) -> bool:
    """Return whether a receipt is of another total, sum or server than who keeps it thinks."""
    parties = signed(made(MODES["plain"]))
    protocol = ReceiptedSum(protocol=parties.protocol)
    result = run_in_memory(Faulty(protocol=protocol, secrets=parties.secrets, sessions=sessions), VECTORS).result
    try:
        receipt = Receipt.from_bytes(result.receipt)
        protocol.verify(receipt)
        receipt.verify_total(result.total)
    except ReceiptError:
        return True
    return False


def is_refuted(spoil: Callable[..., Any] | None) -> bool:
    """Return whether small runs refute a claim of epsilon 8 where clients send other noise."""
    form = RowFormat(integer_bits=1, fraction_bits=16)
    learner = AFL(n_features=6, n_targets=3, feature_format=form, max_rows=40)
    plan = PrivacyPlan(epsilon=8.0, min_noise_shares=4, colluders=1)
    with seeded_system(), spoiled_noise(spoil):  # honest noise is refuted once in a thousand times
        found = two_worlds(learner, plan, np.random.default_rng(1), runs=100)
    return found.outcome is Outcome.REFUTED


def differs_from_pooled(learner: type[AFL]) -> bool:
    """Return whether the model of a federation is not, bit for bit, that of all rows in one place."""
    rng, form = np.random.default_rng(0), RowFormat(integer_bits=2, fraction_bits=24, signed=True)
    options = {"n_features": 3, "n_targets": 2, "feature_format": form, "max_rows": 60, "ridge": 1.0}
    rows = {k: ClientRows(rng.normal(size=(10, 3)).clip(-3, 3), rng.integers(0, 2, 10)) for k in CLIENTS}
    honest, tried = AFL(**options), learner(**options)
    model = federate(rows, tried, "plain").model
    return tried.weights_bytes(model) != honest.weights_bytes(fit_pooled(honest, ClientRows.pool(list(rows.values()))))


EXACT = Check(name="exact total, masked", notices=is_inexact, honest=partial(faulty, "masked"))
EXACT_PLAIN = Check(name="exact total, plain", notices=is_inexact, honest=partial(faulty, "plain"))
AGAIN = Check(name="second answer, masked", notices=answers_again, honest=partial(faulty, "masked"))
AGAIN_COMMITTEE = Check(name="second answer, committee", notices=answers_again, honest=partial(faulty, "committee"))
AGAIN_BFV = Check(name="second answer, bfv", notices=answers_again, honest=partial(faulty, "bfv"))
FORGETS = Check(name="secrets after the sum", notices=keeps_secrets, honest=partial(faulty, "masked"))
REFUSED = Check(name="refusal", notices=is_refused, honest=on_the_way(MessageType.ROSTER, lambda _, message: message))
STORED = Check(name="the same again", notices=says_else, honest=lambda: MemoryStore)
SPENT = Check(name="a budget is spent once", notices=is_spent_twice, honest=lambda: Ledger.open)
RECEIPT = Check(name="receipts verify", notices=receipt_is_wrong, honest=Sessions)
NOISE = Check(name="evidence about noise", notices=is_refuted, honest=lambda: None)
POOLED = Check(name="federated equals pooled", notices=differs_from_pooled, honest=lambda: AFL)
