"""A session: what a party agrees to when it reads a training proposal with its own roster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from analytic.errors import AnalyticError
from analytic_secagg.errors import UsageError
from analytic_secagg.federation import Step
from analytic_secagg.modes import Mode, find_mode
from analytic_secagg.session_config import SessionConfig
from analytic_secagg.site.errors import WireError
from analytic_secagg.site.proposal import NO_RECEIPTS, TrainingProposal
from analytic_secagg.site.provenance import refusal
from analytic_secagg.site.roster import Roster
from secagg import PartyId, ReceiptedSum, SignedBy, SumProtocol
from secagg.encoding import length_prefixed
from secagg.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Session:
    """A proposal that a party understood, as all parties of the sum work it out.

    Args:
        proposal: what the server asked for.
        mode: how the sum is made.
        config: the public parameters that it is made from, keys of this party's own roster among them.
        protocol: the sum.
        step: the learner's sum.
    """

    proposal: TrainingProposal
    mode: Mode
    config: SessionConfig
    protocol: SumProtocol
    step: Step[Any]

    @classmethod
    def of(cls, proposal: TrainingProposal, roster: Roster) -> Self:
        """Return what a party takes part in if it accepts.

        Raises:
            WireError: no model, or a model that needs no sum.
            ConfigurationError: other parties than this roster's, unsafe terms, another private form than the privacy
                plan of the proposal gives, or no context of the key holder.
            FederationError: clients that may hold more rows together than the learner's sums have room for.
        """
        step = _step_of(proposal, roster)
        config, mode = _config_of(proposal, roster, step), find_mode(proposal.mode)
        if proposal.place and (step.noise is not None or proposal.receipts != NO_RECEIPTS):
            raise ConfigurationError("sums with noise or receipts need a session each, not a multi-round session")
        if proposal.place:
            protocol: SumProtocol = mode.series(config).sum(proposal.place - 1, config.layout, config.context)
        else:
            protocol = step.over(mode.make(config))
        if proposal.receipts != NO_RECEIPTS:
            protocol = ReceiptedSum(protocol=protocol, signed_by=_signed_by(proposal.receipts))
        return cls(proposal=proposal, mode=mode, config=config, protocol=protocol, step=step)


def config_of(proposal: TrainingProposal, roster: Roster) -> SessionConfig:
    """Return the public parameters of a proposed sum, also while a helper has not announced anything yet.

    Raises:
        WireError: no model, or a model that needs no sum.
        ConfigurationError: other parties than this roster's, or an unknown mode.
    """
    return _config_of(proposal, roster, _step_of(proposal, roster))


def _config_of(proposal: TrainingProposal, roster: Roster, step: Step[Any]) -> SessionConfig:
    """Put all that a party received into the session's context; an announcement has a field of its own."""
    try:
        mode = find_mode(proposal.mode)
    except (UsageError, AnalyticError) as error:
        raise ConfigurationError(str(error)) from error
    if made_otherwise := refusal(roster.provenance, proposal.provenance):
        raise ConfigurationError(made_otherwise)
    listed = roster.listed(mode.helper)
    _check_parties(mode, "clients", proposal.clients, roster.clients)
    _check_parties(mode, f"{mode.helper.name}s" if mode.helper else "helpers", proposal.helpers, listed)
    received = length_prefixed(b"flower app", proposal.terms, step.received)
    return SessionConfig(
        layout=step.with_headroom(len(proposal.clients)),
        clients=proposal.clients,
        session_id=proposal.session,
        context=hashlib.sha256(received).digest(),
        client_keys=roster.clients,
        helper_keys={party: listed[party] for party in proposal.helpers},
        corrupt_helpers=roster.corrupt_helpers,
        server_key=roster.server,
        beacon=roster.beacon,
        corruption=proposal.corruption,
        dropout=proposal.dropout,
        min_survivors=proposal.min_survivors,
        announced=proposal.announced,
    )


def _step_of(proposal: TrainingProposal, roster: Roster) -> Step[Any]:
    """Return the sum that the proposal's learner needs next."""
    saved = proposal.saved()
    noise = None if proposal.privacy is None else proposal.privacy.form_of(saved.learner)
    number = 0 if noise is None or saved.learner.next_sum(saved.model) is None else noise.due(saved.model)
    step = Step.of(
        saved.learner,
        saved.model,
        number=number,
        noise=noise,
        max_client_rows=roster.max_client_rows,
        n_clients=len(roster.clients),
    )
    if step is None:
        raise WireError("this model is complete; no sum is left to take part in")
    return step


def _signed_by(name: str) -> SignedBy:
    try:
        return SignedBy(name)
    except ValueError as error:
        raise ConfigurationError("a receipt is signed by server, clients or helpers, or there are none") from error


def _check_parties(mode: Mode, who: str, named: tuple[PartyId, ...], listed: Mapping[PartyId, bytes]) -> None:
    """Refuse other parties than the roster's, which alone says who takes part.

    A server that could leave helpers out would keep the one that it colludes with; one that could leave clients out
    would surround a client with its own. Who is away has a place in the proposal, and is a dropout.
    """
    if named != tuple(sorted(listed)):
        raise ConfigurationError(
            f"the terms of a sum in the mode {mode.name} must name exactly the {len(listed)} {who} that this party's "
            f"roster lists, in their order; they name {len(named)}, of which {len(set(named) - listed.keys())} are not "
            "in the roster. Compare fingerprints of rosters; if they agree, the server chose for itself"
        )
