"""Statements of a run's summary that follow from its settings, roster, totals and receipts."""

from __future__ import annotations

from typing import Any

from analytic_secagg.configurations import configuration_digest
from analytic_secagg.federation import Federation, SumRecord
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.roster import Roster
from secagg import Receipt, SumResult


def account_of_run(settings: RunSettings, roster: Roster, federation: Federation[Any]) -> dict[str, Any]:
    """Return what is fixed before the first sum.

    Args:
        settings: of the run.
        roster: the server's.
        federation: of these settings and this roster, before or after its sums.
    """
    return {
        "mode": settings.mode,
        "learner": federation.learner.name,
        "configuration": configuration_digest(federation.learner).hex(),
        "privacy": None if settings.privacy is None else settings.privacy.to_public(),
        "settings": settings.model_dump(mode="json"),
        "roster": roster.fingerprint,
        "bill": None if federation.noise is None else federation.noise.explain(),
    }


def account_of_sum(record: SumRecord, session: bytes, result: SumResult) -> dict[str, Any]:
    """Return what happened in one sum; all of it public."""
    statement = Receipt.from_bytes(result.receipt).statement if result.receipt else None
    return {
        "session": session.hex(),
        "context": record.context.hex(),
        "configuration": None if statement is None else statement.configuration.hex(),
        "uploads": None if statement is None else statement.uploads.hex(),
        "survivors": list(record.survivors),
        "segments": [[one.name, one.size, one.bound] for one in record.layout.segments],
        "concerns": [
            {"gate": concern.gate.value, "refuses": concern.refuses, "message": concern.message}
            for concern in record.concerns
        ],
        "disputes": [list(pair) for pair in record.disputes],
        "complaints": [list(pair) for pair in record.complaints],
    }
