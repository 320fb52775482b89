"""Books that must balance, tried on small ones: bills of noise, ledgers, a server's noise, receipts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analytic.afl import AFL
from analytic.row_format import RowFormat
from federation.privacy import PrivacyPlan, PrivateForm
from secagg import IdentityKey, InOneProcess, PlainSum, Receipt, ReceiptedSum, SignedBy, new_session_id
from secagg.config import SERVER
from secagg.dp import Budget, BudgetExceededError, CoordinateNoise, Ledger, guarantee
from secagg.dp.noisy_sum import CentralNoisySum
from secagg.errors import ReceiptError
from secagg.in_memory import run_in_memory
from secagg.layout import Layout
from secagg.sums import PartySecrets

CLIENTS = (1, 2, 3)
LAYOUT = Layout.of([("few", 3, 1000)])
VECTORS = {party: np.arange(3) for party in CLIENTS}


@lru_cache(maxsize=1)
def wrong_books() -> tuple[str, ...]:
    """Return what does not balance, by name."""
    plan = PrivacyPlan(epsilon=1.0, promised_survivors=3, colluders=1)
    learner = AFL(n_features=2, n_targets=2, feature_format=RowFormat(integer_bits=2, fraction_bits=4), max_rows=64)
    form = plan.apply(learner)
    found = (*_bill(plan, learner, form), *_ledger(form), *_noise_of_a_server(), *_receipts())
    return tuple(dict.fromkeys(found))


def _bill(plan: PrivacyPlan, learner: AFL, form: PrivateForm) -> Iterator[str]:
    """A release costs what its noise costs against its sensitivity, and two cost what both cost."""
    sums: Any = plan.bounded(learner).bounded_sums(plan.unit, plan.adjacency)
    for own, noise, release in zip(sums, form.noises, form.releases, strict=True):
        variances = (noise if isinstance(noise, CoordinateNoise) else noise.total).variances
        if release.rho < own.sensitivity.rho(*dict.fromkeys((variances[0], variances[-1]))):
            yield "a release is booked below what its noise costs"
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
