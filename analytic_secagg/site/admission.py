"""Admission: what of a training proposal a site's own file allows, before any row is read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from analytic.learner import AnalyticLearner
from analytic.model_files import EVALUATIONS, LEARNERS
from analytic_secagg.configurations import configuration_digest, described
from analytic_secagg.federation import Step
from analytic_secagg.modes import MODES
from analytic_secagg.privacy import is_bounded
from analytic_secagg.site.errors import DeclinedError, NoBudgetError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import ANY, SiteFile
from secagg.dp import BudgetExceededError
from secagg.errors import ConfigurationError, PolicyError

SHOWN = 60
"""Most characters of a name of the server's choice that an error shows."""


def admit(file: SiteFile, proposal: TrainingProposal) -> tuple[Session, str]:
    """Return the session that a site agrees to, and why its client takes no part in it; empty if the client does.

    A client that takes no part keeps no helper of the same site from helping.

    Args:
        file: the site's own file.
        proposal: the sum.

    Raises:
        DeclinedError: the file forbids it to all parties of the site, or none of them is in the sum.
    """
    refuse_extensions(file, proposal.learner_names, proposal.mode)
    helps = any(own.party in proposal.helpers for own in file.helpers)
    if not helps:  # before a learner, or a model, of the server's choice is made here
        _decline(_refused_name(file, proposal.learner_names[0]) or _refused_learner(file, proposal.learner))
    try:
        session = Session.of(proposal, file.roster)
        noise = session.step.noise
        file.policy.check(session.protocol, () if noise is None else noise.releases)
        if noise is not None and file.policy.noise is not None:
            n, of_records = noise.n_protected(len(session.protocol.clients)), noise.plan.unit == "record"
            file.policy.noise.check_delta(noise.plan.delta, n, is_bound=of_records)
    except (ConfigurationError, PolicyError) as error:
        raise DeclinedError(str(error)) from error
    _check_columns(file, session)
    step = session.step
    if is_bounded(step.learner) and noise is None:
        raise DeclinedError(
            f"this {step.learner.name} maps rows for sums with noise, and this sum has none: a map and a centre of the "
            "server's choice would show in an exact total whether a row is among them"
        )
    refusal = (
        _refused_name(file, step.learner.name) or _refused_learner(file, step.learner) or _refused_model(file, step)
    )
    if not helps:
        _decline(refusal)
        if file.client is None:
            raise DeclinedError("this site has no part in this sum: none of its parties is in its terms")
    return session, refusal


def refuse_extensions(file: SiteFile, learners: Iterable[str], mode: str | None = None) -> None:
    """Decline code of other packages that a site's own file does not name, before any of it is imported.

    Raises:
        DeclinedError: says which name, and where its owner would add it.
    """
    known = LEARNERS.keys() | EVALUATIONS.keys() | file.named_learners
    for name in learners:
        if name not in known:
            raise DeclinedError(
                f"the server proposes the learner {name[:SHOWN]!r} of another package, which this site's file does "
                "not name: if its owner trusts that package, add it to learners in [client], or to extensions "
                "where there is no client"
            )
    if mode is not None and mode not in MODES.keys() | file.demands.modes:
        raise DeclinedError(
            f"the server proposes the mode {mode[:SHOWN]!r} of another package, which this site's file does not "
            "name: if its owner trusts that package, add it to modes in [policy]"
        )


def check_budget(file: SiteFile, session: Session) -> None:
    """Decline a sum that begins a run, or goes on with one, whose rest this site's budget has no room for.

    Nothing is charged here: a server that never asks for a vector has seen nothing.

    Raises:
        NoBudgetError: too little of the budget is left.
    """
    step, ledger = session.step, file.ledger
    if ledger is None or step.noise is None:
        return
    try:
        ledger.check(step.noise.releases[step.number :])
    except BudgetExceededError as error:
        raise NoBudgetError(str(error)) from error


def _decline(refusal: str) -> None:
    if refusal:
        raise DeclinedError(refusal)


def _check_columns(file: SiteFile, session: Session) -> None:
    """Decline an exact total from which rows can be rebuilt whatever rows come: what a site knows of the gates."""
    step, most = session.step, file.roster.max_client_rows
    rows = None if most is None else most * len(session.protocol.clients)
    if rows is not None and step.noise is None and step.n_columns >= rows:
        raise DeclinedError(
            f"an exact total needs more rows than columns, and this {step.learner.name} sums the Gram of "
            f"{step.n_columns} columns over at most {rows} rows, by the roster's max_client_rows: use fewer "
            "features, or noise"
        )


def _refused_name(file: SiteFile, name: str) -> str:
    """Return why the client contributes to no learner of this name; empty if it does."""
    if file.client is None:
        return ""
    listed = file.client.learners
    if listed is None:
        listed = frozenset({"afl"}) if file.configurations == ANY else frozenset({name})
    return "" if name in listed else f"this site contributes to {', '.join(sorted(listed))} only, not to {name}"


def _refused_learner(file: SiteFile, learner: AnalyticLearner[Any]) -> str:
    """Return why the client tries no row on a learner; empty if it does.

    A format, a scale or a map of the server's choice shows single rows in a total of all clients, and whether a site's
    rows fit it shows this site's (docs/explanation/what-is-not-protected.md).
    """
    agreed = file.configurations
    if file.client is None:
        return ""
    digest = configuration_digest(learner)
    if agreed == ANY or digest in agreed:
        return ""
    return (
        f"this site's rows are for {len(agreed)} configurations that were agreed on, and the server proposes another "
        f"one, {digest.hex()}: {json.dumps(described(learner))}; if all owners agree to it, add it to configurations "
        "in the roster, or in [client] of this site's file"
    )


def _refused_model(file: SiteFile, step: Step[Any]) -> str:
    """Return why the client joins no sum that depends on a model which the server states; empty if it does."""
    client, learner = file.client, step.learner
    if client is None or file.configurations == ANY or step.noise is not None:
        return ""
    if learner.name in client.unverified_models:
        return ""
    if learner.name not in EVALUATIONS and step.received == learner.context_bytes(learner.init()):
        return ""
    return (
        f"this exact sum of {learner.name} depends on a model that the server states and this site cannot check: a "
        "crafted one shows rows as a crafted configuration does; if its owner trusts the server with that, add "
        f'"{learner.name}" to unverified_models in [client]; or have the run add noise'
    )
