"""Books that must balance, tried on small ones (bills, ledgers, noise, receipts), and what nobody may take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from analytic.afl import AFL
from analytic.errors import RowsOutsideFormatError
from analytic.row_format import RowFormat
from federation.modes import MODES
from federation.privacy import PrivacyPlan, PrivateForm
from secagg import FileStore, IdentityKey, InOneProcess, PlainSum, Receipt, ReceiptedSum, SignedBy, new_session_id
from secagg.carriers import encrypted
from secagg.committee import SealingKey
from secagg.committee.epochs import AcceptedEpochs, OwnEpochs
from secagg.config import SERVER
from secagg.dp import Budget, BudgetExceededError, CoordinateNoise, DistributedNoise, Ledger, PrivacyError, guarantee
from secagg.dp.conversions import gdp_delta
from secagg.dp.noisy_sum import CentralNoisySum, NoisySum, make_room
from secagg.entropy import os_entropy
from secagg.errors import ConfigurationError, PolicyError, ReceiptError, SecureSumError, SumOutOfBoundsError
from secagg.in_memory import run_in_memory
from secagg.layout import Layout
from secagg.policy import ClientPolicy
from secagg.primitives.boxes import BoxKey
from secagg.sums import PartySecrets
from simulations.audit.held import to_its_end
from simulations.audit.questions.ask import other_answers

CLIENTS = (1, 2, 3)
LAYOUT = Layout.of([("few", 3, 1000)])
VECTORS = {party: np.arange(3) for party in CLIENTS}


@lru_cache(maxsize=1)
def wrong_books() -> tuple[str, ...]:
    """Return what does not balance, and which questions are answered otherwise, by name."""
    plan = PrivacyPlan(epsilon=1.0, promised_survivors=3, colluders=1)
    learner = AFL(n_features=2, n_targets=2, feature_format=RowFormat(integer_bits=2, fraction_bits=4), max_rows=64)
    form = plan.apply(learner)
    tried = (_bill(plan, learner, form), _ledger(form), _noise_of_a_server(), _receipts(), _taken(), other_answers())
    return tuple(dict.fromkeys(what for one in tried for what in to_its_end(one)))


def _bill(plan: PrivacyPlan, learner: AFL, form: PrivateForm) -> Iterator[str]:
    """A release costs what its noise costs against its sensitivity, and two cost what both cost."""
    sums: Any = plan.bounded(learner).bounded_sums(plan.unit, plan.adjacency)
    for own, noise, release in zip(sums, form.noises, form.releases, strict=True):
        variances = (noise if isinstance(noise, CoordinateNoise) else noise.total).variances
        if release.rho < own.sensitivity.rho(*dict.fromkeys((variances[0], variances[-1]))):
            yield "a release is booked below what its noise costs"
    if abs(gdp_delta(1.0, 1.0) - 0.126936737507) > 1e-12:  # Phi(-1/2) - e Phi(-3/2): Balle and Wang, ICML 2018, Thm 8
        yield "the Gaussian curve is another one"
    once, twice = (guarantee(form.releases[-1:] * times, plan.delta) for times in (1, 2))
    if twice.rho != 2 * once.rho or twice.epsilon <= once.epsilon:
        yield "two releases cost no more than one"


def _ledger(form: PrivateForm) -> Iterator[str]:
    """What was charged is spent, and no budget is spent twice."""
    release, plan = form.releases[-1], form.plan
    enough = 1.01 * guarantee([release], plan.delta).epsilon
    budget = Budget(epsilon=enough, delta=plan.delta, unit=plan.unit, adjacency=plan.adjacency, population="a try")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        Ledger.create(path, budget).charge(release, session_id=bytes(16))
        try:
            Ledger.open(path).charge(release, session_id=bytes(16))
        except BudgetExceededError:
            return
        yield "a ledger lets a budget be spent twice"


def _noise_of_a_server() -> Iterator[str]:
    """One total, one noise, however often it is read; another session, another noise."""
    noise, shown = CoordinateNoise(levels=np.ones(3, dtype=np.uint8), variances=(1 << 40,)), list[tuple[int, ...]]()
    for _ in range(2):
        plain = PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=new_session_id())
        protocol = CentralNoisySum(protocol=plain, noise=noise)
        server = protocol.server()
        for party, vector in VECTORS.items():
            server.receive(party, protocol.client(party, vector).start() or b"")
        server.close_round()
        first, second = (server.result, server.result)
        assert first is not None, "all clients spoke"
        assert second is not None, "and the result stays"
        if first.total.tolist() != second.total.tolist():
            yield "a server draws a second noise for one total"
        shown.append(tuple(first.total.tolist()))
    if len(set(shown)) < len(shown):
        yield "a server's noise repeats in another session"


def _receipts() -> Iterator[str]:
    """A receipt is of one total, whose opening the server alone makes, and of the one who signed it."""
    identities = {party: IdentityKey.generate() for party in (SERVER, *CLIENTS)}
    plain = PlainSum(
        layout=LAYOUT,
        clients=CLIENTS,
        session_id=new_session_id(),
        identities=tuple(identities[party].public for party in CLIENTS),
        server_identity=identities[SERVER].public,
    )
    secrets = {party: PartySecrets(identity=identity) for party, identity in identities.items()}
    protocol = ReceiptedSum(protocol=plain, signed_by=SignedBy.SERVER)
    result = run_in_memory(InOneProcess(protocol=protocol, secrets=secrets), VECTORS).result
    receipt = Receipt.from_bytes(result.receipt)
    with suppress(ReceiptError):
        receipt.verify_total(result.total + 1)
        yield "a receipt is taken for one of another total"
    with suppress(ReceiptError):
        receipt.verify(identities[1].public)
        yield "a receipt is taken for one of another server"


def _taken() -> Iterator[str]:
    """What no party takes, and what no format, policy or restored session lets through."""
    helper, boxes = IdentityKey.generate(), BoxKey.generate(os_entropy)
    sealing, later = (SealingKey.signed(helper, boxes.public, epoch=epoch) for epoch in (1, 2))
    with suppress(ConfigurationError):
        replace(sealing, epoch=3).check(helper.public)
        yield "a sealing key is taken that its helper did not sign"
    with TemporaryDirectory() as folder:
        own = OwnEpochs(FileStore(Path(folder) / "own"), helper)
        accepted = AcceptedEpochs(FileStore(Path(folder) / "accepted"))
        own.begin(0.0, 1.0)
        if own.current(2.0) is not None:
            yield "the secret of an epoch that is over is kept"
        accepted.accept({helper.public: later}, 0.0)
        with suppress(PolicyError):
            accepted.accept({helper.public: sealing}, 0.0)
            yield "an older epoch of a helper is taken"
    plain = PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=new_session_id())
    if MODES["bfv"].installed:
        carrier: Any = cast("PlainSum", encrypted(plain, "bfv", identity=helper).protocol).carrier
        with suppress(ConfigurationError):
            replace(plain, carrier=replace(carrier, signature=bytes(64)))
            yield "a public context is taken that its key holder did not sign"
    with suppress(PolicyError):
        ClientPolicy(modes=frozenset({"masked"})).check(plain)
        yield "a policy agrees to a mode that it does not name"
    total = CoordinateNoise(levels=np.ones(3, dtype=np.uint8), variances=(64,))
    noise = DistributedNoise(total=total, promised_survivors=3)
    few = PlainSum(layout=make_room(LAYOUT, 3, noise), clients=CLIENTS, session_id=new_session_id(), min_survivors=2)
    with suppress(PrivacyError):
        NoisySum(protocol=few, layout=LAYOUT, noise=noise)
        yield "noise counts on survivors whom the sum does not promise"
    with suppress(SumOutOfBoundsError):
        Layout.of([("few", 1, 100, 10)]).check_total(np.array([50]), 2)
        yield "a total is taken that its clients cannot have"
    with suppress(RowsOutsideFormatError):
        RowFormat(integer_bits=1, fraction_bits=4).quantise(np.full((1, 1), 5.0))
        yield "a format clips in silence"
    spoke, again = (plain.client(1, VECTORS[1]) for _ in range(2))
    spoke.start()
    with suppress(SecureSumError):
        again.restore(spoke.snapshot())
        again.start()
        yield "a restored session speaks again"
