"""A node's side of secure means: it answers a round's messages and lets its app train in between; no engine in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from analytic_secagg.errors import FederationError, UsageError
from analytic_secagg.mean.participation import Participation, ParticipationLog, log_in_state, log_of_site
from analytic_secagg.mean.plan import MeanPlan
from analytic_secagg.mean.terms import MeanTerms, Model, digest_of, floats_of
from analytic_secagg.modes import MODES
from analytic_secagg.site.site_file import MIN_CHANGE, OwnRole, SiteFile
from secagg import (
    ClientPolicy,
    ClientSession,
    IntVector,
    MeanSpec,
    PartyId,
    PartySecrets,
    SecureSumError,
    SumProtocol,
    os_entropy,
)
from secagg.committee import SealingKey
from secagg.dp import Ledger, PrivateMeanSpec
from secagg.dp.noisy_sum import NOISY
from secagg.primitives.boxes import BoxKey
from secagg.ring import RingVector
from secagg.sessions import ClientInput
from secagg.sums import Consent

WHO, BEGIN, GO_ON, TRAIN, KEY, HELP = "who", "begin", "go on", "train", "key", "help"
"""Stages of a round: who a node is in the roster, the first message of a client, any later one that is not the one with
the model to train, and a helper's sealing key and later messages."""

REFUSALS = (SecureSumError, FederationError, LookupError, TypeError, ValueError, OSError)
"""Errors that a wrong message of a server or of an app raises; a node answers each with one bland refusal."""

State = MutableMapping[str, Any]
"""Where an engine keeps what a node needs in its next message, under text names: bytes, numbers and lists of texts."""


class MeanClient:
    """A node in secure means. Nothing stays in this object between messages; ``state`` holds the session.

    Args:
        terms: as the server states them.
        policy: demands on the sum; None takes the site's own, or without a site three clients and survivors.
        site: the node's file; with it messages are signed, and its roster says who may take part. None trusts the
            server not to lie.
        min_change: fewest clients by which the cohorts of two means may differ where they differ at all; 1 permits any
            change (``ParticipationLog``). None takes 3; a site's ``[journal]`` counts where it says more. Private
            means, whose noise covers differences, permit any change.
        ledger: the file that private means are charged to (``secagg.dp.Ledger``), of a node without a site; a site has
            its own.

    Raises:
        UsageError: a ledger beside a site.

    Example:
        >>> import numpy as np
        >>> from analytic_secagg.mean.server import MeanRound
        >>> terms, model = MeanTerms(max_weight=9), {"w": np.zeros(2)}
        >>> nodes, states = {party: MeanClient(terms) for party in (1, 2, 3)}, {1: {}, 2: {}, 3: {}}
        >>> def ask(stage, plan, contents):
        ...     for party, content in contents.items():
        ...         yield party, nodes[party].answer(stage, plan, party, content, states[party])
        >>> round_ = MeanRound(terms, model, b"", members=("1", "2", "3"))
        >>> for party, content in round_.set_up(ask).items():
        ...     nodes[party].check(round_.plan, party, model, b"", states[party])
        ...     trained = {"w": np.full(2, float(party))}
        ...     round_.take(party, nodes[party].upload(content, model, trained, 1, {}, states[party]))
        >>> round_.finish(ask).arrays["w"].round(3)
        array([2., 2.])
    """

    def __init__(
        self,
        terms: MeanTerms,
        *,
        policy: ClientPolicy | None = None,
        site: SiteFile | None = None,
        min_change: int | None = None,
        ledger: Path | None = None,
    ) -> None:
        if site is not None and ledger is not None:
            raise UsageError(
                "a node with a site charges private means to the ledger of its site's file alone, or two ledgers would "
                "each hold a part of what its rows have cost: leave the ledger out of the mod, and state [privacy]"
            )
        self._terms, self._site, self._ledger = terms, site, ledger
        self._min_change = _least_change(terms, site, min_change)
        self._policy = policy or _default_policy(terms, site)

    def answer(self, stage: str, plan: bytes, party: PartyId, content: bytes, state: State) -> bytes:
        """Answer a message that asks for no training.

        Args:
            stage: of the round.
            plan: encoding of its ``MeanPlan``.
            party: number that the server gives this node; its roster's number counts where it has a site.
            content: message of the sum; empty in a first one.
            state: of this node.

        Raises:
            UsageError, ConsentRefusedError, SecureSumError: why this node takes no part; the reason stays with it.
        """
        if stage == WHO:
            return json.dumps(self._numbers()).encode()
        if stage == BEGIN:
            self._begin(plan, party, state)
            return self._said(self._session(state, _no_vector), state)
        if stage == GO_ON:
            return self._go_on(content, state, _no_vector)
        if stage == KEY:
            return self._announce_key(state)
        if stage == HELP:
            return self._help(plan, party, content, state)
        raise UsageError(f"a round has no stage {stage!r}; both sides need the same version")

    def check(self, plan: bytes, party: PartyId, model: Model, options: bytes, state: State) -> None:
        """Refuse to train on a model, or with options, that this round did not agree on. Call it before training.

        Raises:
            UsageError, SecureSumError: what differs.
        """
        if self._terms.mode == "committee":
            self._begin(plan, party, state)
        agreed = MeanPlan.from_bytes(state["plan"])
        if digest_of(model).hex() != agreed.model:
            raise UsageError("the model to train is another one than this round agreed on")
        if options.hex() != agreed.options:
            raise UsageError("the configuration to train with is another one than this round agreed on")

    def upload(
        self, content: bytes, before: Model, after: Model, weight: Any, metrics: Mapping[str, Any], state: State
    ) -> bytes:
        """Return the message with the masked update, once for each model.

        Args:
            content: message of the sum that came with the model.
            before: the model that came.
            after: the model that the app trained.
            weight: number of examples.
            metrics: of the training; those that the terms name are averaged.
            state: of this node.

        Raises:
            UsageError, SecureSumError: an update that is none; which array.
        """
        plan, spec, _ = self._sum(state["plan"])
        vectors = [self._vector(spec, floats_of(before), floats_of(after), weight, metrics)]
        with self._log(state) as log:
            this = self._participation(plan, plan.members)
            log.check(this)
            log.note(this)  # before the ledger, or a crash in between looks like a log that forgot the sum
            if isinstance(spec, PrivateMeanSpec):
                self._open_ledger().charge(spec.release, session_id=bytes.fromhex(plan.session))
        if self._terms.mode == "masked":
            return self._go_on(content, state, vectors.pop)  # so that nobody keeps it once it is masked
        said = self._session(state, vectors.pop).start()
        forget(state)
        return said or b""

    def _participation(self, plan: MeanPlan, names: Iterable[str]) -> Participation:
        keys = {} if self._site is None else self._site.roster.clients
        clients = tuple(keys[int(name)].hex() if keys else name for name in names)
        return Participation(session=plan.session, model=plan.model, clients=clients)

    def _numbers(self) -> dict[str, PartyId]:
        """Return this node's numbers in the roster by role; nothing without a site."""
        if self._site is None:
            return {}
        helper = {} if not self._helpers else {"helper": self._helpers[0].party}
        return helper | ({} if self._site.client is None else {"client": self._site.client.party})

    def _sum(self, plan: bytes) -> tuple[MeanPlan, MeanSpec | PrivateMeanSpec, SumProtocol]:
        said = MeanPlan.from_bytes(plan)
        return said, *said.sum(self._terms, None if self._site is None else self._site.roster)

    def _begin(self, plan: bytes, party: PartyId, state: State) -> None:
        """Join a round, if this node's policy and its log allow it."""
        said, spec, sum_ = self._sum(plan)
        if isinstance(spec, PrivateMeanSpec):
            self._policy.check(sum_, [spec.release] * spec.privacy.rounds)
            self._open_ledger().check([spec.release])
        else:
            self._policy.check(sum_)
        with self._log(state) as log:
            log.check(self._participation(said, said.members))
        own = party if self._site is None else self._numbers().get("client")
        if own not in sum_.clients:
            raise UsageError(f"this node is no client of this sum; its number is {own}")
        state["plan"], state["party"], state["snapshot"] = plan, own, b""

    def _session(self, state: State, contribution: ClientInput) -> ClientSession:
        plan, _, sum_ = self._sum(state["plan"])
        identity = None if self._site is None or self._site.client is None else self._site.client.identity
        secrets = PartySecrets(identity=identity, consent=self._consent(plan, state))
        return sum_.client(state["party"], contribution, secrets=secrets)

    def _consent(self, plan: MeanPlan, state: State) -> Consent:
        """Return what logs a mean's survivors before they are signed or, by a helper, unmasked; or refuses them."""

        def consent(sum_: SumProtocol, survivors: tuple[PartyId, ...] | None, fingerprints: object) -> None:
            if survivors is not None:
                names = dict(zip(sum_.clients, plan.members, strict=True))
                with self._log(state) as log:
                    this = self._participation(plan, [names[party] for party in survivors])
                    log.check(this, has_begun=True)
                    log.note(this)

        return consent

    def _go_on(self, content: bytes, state: State, contribution: ClientInput) -> bytes:
        session = self._session(state, contribution)
        session.restore(state["snapshot"])
        said = session.receive(content)
        state["snapshot"] = session.snapshot()
        return said or b""

    def _said(self, session: ClientSession, state: State) -> bytes:
        said = session.start()
        state["snapshot"] = session.snapshot()
        return said or b""

    def _vector(
        self, spec: MeanSpec | PrivateMeanSpec, before: Model, after: Model, weight: Any, metrics: Mapping[str, Any]
    ) -> IntVector | RingVector:
        if isinstance(spec, PrivateMeanSpec):
            return spec.vector(after, before=before)
        return spec.words(
            after, before=before, weight=weight, metrics={name: metrics[name] for name in self._terms.metrics}
        )

    def _open_ledger(self) -> Ledger:
        """Return the account of what this node's updates have cost, which every private mean is charged to."""
        if self._ledger is not None:
            return Ledger.open(self._ledger)
        ledger = None if self._site is None else self._site.ledger
        if ledger is None:
            raise UsageError(
                "a private mean is charged to a ledger and this node has none: state [privacy] in its site's file, or "
                "give the mod a ledger"
            )
        return ledger

    def _log(self, state: State) -> AbstractContextManager[ParticipationLog]:
        if self._site is None:
            return log_in_state(state, self._min_change)
        return log_of_site(self._site, self._min_change)

    @property
    def _helpers(self) -> tuple[OwnRole, ...]:
        """The role of a committee's helper that this node's site has, if it has one."""
        role = MODES["committee"].helper
        return () if self._site is None else tuple(own for own in self._site.helpers if own.role == role)

    def _announce_key(self, state: State) -> bytes:
        """Draw the key of one round's boxes; that of the next round takes its place."""
        key = BoxKey.generate(os_entropy)
        state["box"], state["helper snapshot"] = key.secret, b""
        if self._site is None:
            return key.public
        return SealingKey.signed(self._helpers[0].identity, key.public).to_bytes()

    def _help(self, plan: bytes, party: PartyId, content: bytes, state: State) -> bytes:
        agreed, _, sum_ = self._sum(plan)
        number, secrets = party, PartySecrets(boxes=BoxKey(state["box"]))
        if self._site is not None:
            own = self._helpers[0]
            number, consent = own.party, self._consent(agreed, state)
            secrets = replace(secrets, identity=own.identity, consent=consent)
        session = sum_.helper(number, secrets=secrets)
        if state["helper snapshot"]:
            session.restore(state["helper snapshot"])
        said = session.receive(content)
        state["helper snapshot"] = session.snapshot()
        return said or b""


def forget(state: State) -> None:
    """End the session of this round, whose secrets are forgotten."""
    if "snapshot" in state:
        state["snapshot"] = b""


def _default_policy(terms: MeanTerms, site: SiteFile | None) -> ClientPolicy:
    if site is None:
        mode = terms.mode if terms.privacy is None else f"{terms.mode}{NOISY}"
        return ClientPolicy(modes=frozenset({mode}), min_corruption=0.0, min_corrupt_helpers=terms.corrupt_helpers)
    helper = MODES[terms.mode].helper
    return replace(site.policy, helpers=site.roster.listed(helper) if helper is not None else {})


def _least_change(terms: MeanTerms, site: SiteFile | None, stated: int | None) -> int:
    if terms.privacy is not None:
        return stated or 1
    if site is None:
        return MIN_CHANGE if stated is None else stated
    return max(stated or 1, site.journal.min_change)  # an app, which the server may have written, weakens no owner's


def _no_vector() -> IntVector:
    raise UsageError("the server asks for a vector in a message that is no request to train")
