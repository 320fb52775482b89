"""A site's side of a sum: proposal in, message out; request in, answer out. It knows no transport."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from analytic.learner import AnalyticLearner
from analytic.model_files import EVALUATIONS
from analytic_secagg.configurations import configuration_digest, described
from analytic_secagg.federation import Step
from analytic_secagg.modes import MODES
from analytic_secagg.privacy import is_bounded
from analytic_secagg.site.errors import DeclinedError, NoSessionError, SiteFileError
from analytic_secagg.site.key_pair import SessionKeyPair
from analytic_secagg.site.parties import KEY_PAIR, epochs_of, parties_of, query_log_of
from analytic_secagg.site.presence import presence_message
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.query_log import LoggedTotal
from analytic_secagg.site.results import RunResults
from analytic_secagg.site.session import Session, config_of
from analytic_secagg.site.site_file import ANY, OwnRole, SiteFile
from analytic_secagg.site.store import SessionStore
from secagg import PartyId, PartySecrets
from secagg.committee import AcceptedEpochs, SealingKey
from secagg.dp import BudgetExceededError
from secagg.durable import DurableClient
from secagg.errors import ConfigurationError, ConsentRefusedError, PolicyError

LOG = logging.getLogger("analytic_secagg.site")
"""The site's own log; it stays on the site's host."""

Messages = Mapping[PartyId, bytes]
"""What parties say or are told; empty bytes say that a party is here and has nothing to say yet."""


class Site:
    """One site. Every call may come in a new process: what lasts lies in the site's own folder.

    Args:
        file: what the site believes.
        now: the time in seconds of the epoch.
    """

    def __init__(self, file: SiteFile, *, now: Callable[[], float] = time.time) -> None:
        self._file, self._now = file, now
        self._folder = SessionStore(file.state, now=now, head=file.journal.head)

    def announce(self, proposal: TrainingProposal) -> Messages:
        """What this site's helpers say to everybody before a sum: nothing where it has none of the sum's.

        A committee's helper says the key that boxes are sealed to in its running epoch, and begins one where none is.
        The key holder says the signed public context of a fresh key pair, the same one if it was asked before. The
        secret halves stay here, sealed.

        Raises:
            DeclinedError: the site's own file forbids it.
            NoSessionError: the session id was used before.
        """
        of_sum = [own for own in self._file.helpers if own.party in proposal.helpers]
        if not of_sum:
            return {}
        if proposal.mode in MODES and MODES[proposal.mode].announce is None:
            raise DeclinedError(f"in the mode {proposal.mode} {of_sum[0].role.name}s announce nothing")
        with self._folder.locked():
            self._end_what_is_over(proposal)
            if of_sum[0].role.has_epochs:
                return {own.party: self._sealing_key(own).to_bytes() for own in of_sum}
            (own,) = of_sum
            store, key = self._folder.key_pair(proposal.session), self._file.state_key(KEY_PAIR, proposal.session)
            stored = SessionKeyPair.load(store, key)
            pair = stored or self._draw(proposal, own)
            self._folder.begin(proposal.without_announcements)
            if stored is None:
                pair.save(store, key)
            return {own.party: pair.announcement}

    def begin_epoch(self, *, number: int | None = None) -> Mapping[PartyId, SealingKey]:
        """End the running epoch of each of this site's helpers, erase its secret and begin the next one.

        Sessions that hold what was sealed to the old key are over with it.

        Args:
            number: of the new epoch, where the folder was lost; None for the next.

        Raises:
            ConfigurationError: a number that is not larger than the last one.
        """
        with self._folder.locked():
            begun = {}
            for own in self._file.helpers:
                if own.role.has_epochs:
                    begun[own.party] = self._next_epoch(own, number)
            return begun

    def join(self, proposal: TrainingProposal, requests: Messages | None = None) -> Messages:
        """The first messages of this site's parties in a sum; the same ones if it was asked before.

        A client whose rows may not enter this total says nothing, and keeps no helper at the same site from helping.

        Args:
            proposal: the sum.
            requests: in a series from its second sum on, what the server asks of whom was set up for this sum.

        Raises:
            DeclinedError: the site's own file forbids it, or it has no part in this sum.
            ConsentRefusedError: none of its parties lets itself be in this total.
            NoSessionError: the session id was used before.
        """
        with self._folder.locked():
            self._end_what_is_over(proposal)
            session = self._agree(proposal)
            if proposal.session not in self._folder.held():
                self._accept_epochs(session)
                self._afford(session)
            self._folder.begin(proposal)
            parties = self._parties(session)
            if proposal.place > 1:
                return _answers(parties, requests or {})
            return _each(parties, lambda party: parties[party].start() or self._present(session, party))

    def answer(self, session: bytes, requests: Messages) -> Messages:
        """The answers to the server's requests; the same ones if this was asked last.

        Raises:
            NoSessionError: no such session is running, or a party that this site is not.
            SecureSumError: the server broke the protocol.
        """
        with self._folder.locked():
            self._sweep(spare=session)
            return _answers(self._parties(self._agree(self._folder.proposal(session))), requests)

    def end(self, session: bytes, results: RunResults | None = None, failure: bytes = b"") -> None:
        """Forget a session's secrets and keep what its run ended in; one that is not running is left as it is.

        Args:
            session: which.
            results: what the server gives, if there is something.
            failure: what proves that the session's sum failed; then the journal counts it no more.

        Raises:
            WireError: results that the server did not sign, or no model. The session is over all the same.
            RemoteProtocolError: no proof. The session is over, and its sum counts.
        """
        with self._folder.locked():
            is_running = session in self._folder.held()
            try:
                self._free(session, failure)
            finally:
                self._end(session)
                self._sweep()
            if results is not None and is_running:
                results.check(self._file.roster.server, session)
                self._file.kept.keep(results)

    def sweep(self) -> None:
        """Forget the sessions of servers that are gone."""
        with self._folder.locked():
            self._sweep()

    def accept_loss(self) -> int:
        """Go on with a journal that is behind its second place; return how many entries that one counted.

        The rows that this site has now count as being in a total that nothing can be compared with.

        Raises:
            SiteFileError: the journal is not behind, so that nothing is to be accepted.
        """
        client = self._file.client
        rows = [] if client is None else [client.rows()]
        if client is not None:
            with suppress(SiteFileError):  # most keep none for judging
                rows.append(client.test_rows())
        with self._folder.locked(is_behind=True):
            return query_log_of(self._file, self._folder).accept_loss(rows, is_helper=bool(self._file.helpers))

    def count_totals(self) -> tuple[int, int]:
        """How many totals this site has had part in, and how many of these its owner had to allow."""
        with self._folder.locked():
            return query_log_of(self._file, self._folder).count()

    def look(self, *, check: bool = False) -> tuple[list[LoggedTotal], int] | None:
        """Return the totals that this site has had part in, and how many sessions' secrets are kept; changes nothing.

        Args:
            check: whether to look at every page of the file too.

        Returns:
            None where there is no journal.

        Raises:
            SiteFileError: a sum is at work, or the file is damaged or, if checked, behind its second place.
        """
        with self._folder.reading() as is_there:
            if check and (problem := self._folder.query_log_head.problem(is_there=is_there)):
                raise SiteFileError(problem)
            if not is_there:
                return None
            if check and (found := self._folder.run("PRAGMA quick_check")) != [("ok",)]:
                raise SiteFileError(f"{self._file.state} is damaged, take it from a copy: {found[0][0]}")
            return query_log_of(self._file, self._folder).totals(), len(self._folder.held())

    def _agree(self, proposal: TrainingProposal) -> Session:
        """The session, if this site's own file allows it; its client may take no part in it all the same."""
        if not self._helps(proposal):  # before a learner, or a model, of the server's choice is made here
            refusal = self._refuses_name(proposal.learner_name) or self._refuses(proposal.learner)
            if refusal:
                raise DeclinedError(refusal)
        try:
            session = Session.of(proposal, self._file.roster)
            noise = session.step.noise
            self._file.policy.check(session.protocol, () if noise is None else noise.releases)
        except (ConfigurationError, PolicyError) as error:
            raise DeclinedError(str(error)) from error
        self._check_columns(session)
        learner = session.step.learner
        if is_bounded(learner) and noise is None:
            raise DeclinedError(
                f"this {learner.name} maps rows for sums with noise, and this sum has none: a map and a centre "
                "of the server's choice would show in an exact total whether a row is among them"
            )
        return session

    def _check_columns(self, session: Session) -> None:
        """Decline an exact total from which rows can be rebuilt whatever rows come: what a site knows of the gates."""
        step, most = session.step, self._file.roster.max_client_rows
        rows = None if most is None else most * len(session.protocol.clients)
        if rows is not None and step.noise is None and step.n_columns >= rows:
            raise DeclinedError(
                f"an exact total needs more rows than columns, and this {step.learner.name} sums the Gram of "
                f"{step.n_columns} columns over at most {rows} rows, by the roster's max_client_rows: use fewer "
                "features, or noise"
            )

    def _helps(self, proposal: TrainingProposal) -> bool:
        """Whether a helper of this site's is in the sum, whatever its client says."""
        helpers = proposal.helpers
        return any(own.party in helpers for own in self._file.helpers)

    def _refuses_name(self, name: str) -> str:
        """Return why the client contributes to no learner of this name; empty if it does."""
        client = self._file.client
        if client is None:
            return ""
        listed = client.learners
        if listed is None:
            listed = frozenset({"afl"}) if self._file.configurations == ANY else frozenset({name})
        return "" if name in listed else f"this site contributes to {', '.join(sorted(listed))} only, not to {name}"

    def _refuses(self, learner: AnalyticLearner[Any]) -> str:
        """Return why the client tries no row on a learner; empty if it does.

        A format, a scale or a map of the server's choice shows single rows in a total of all clients, and whether a
        site's rows fit it shows this site's (docs/explanation/threat-model.md).
        """
        client, agreed = self._file.client, self._file.configurations
        if client is None:
            return ""
        digest = configuration_digest(learner)
        if agreed == ANY or digest in agreed:
            return ""
        return (
            f"this site's rows are for {len(agreed)} configurations that were agreed on, and the server proposes "
            f"another one, {digest.hex()}: {json.dumps(described(learner))}; if all owners agree to it, add it to "
            "configurations in the roster, or in [client] of this site's file"
        )

    def _refuses_model(self, step: Step[Any]) -> str:
        """Return why the client joins no sum that depends on a model which the server states; empty if it does."""
        client, learner = self._file.client, step.learner
        if client is None or self._file.configurations == ANY or step.noise is not None:
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

    def _accept_epochs(self, session: Session) -> None:
        """Decline a sum whose boxes would be sealed to a key of an epoch that is over, or before one accepted here."""
        if session.mode.helper is None or not session.mode.helper.has_epochs:
            return
        config = session.config
        keys = {config.helper_keys[party]: SealingKey.from_bytes(said) for party, said in config.announced.items()}
        try:
            AcceptedEpochs(self._folder.lasting("accepted epochs")).accept(keys, self._now())
        except PolicyError as error:
            raise DeclinedError(str(error)) from error

    def _sealing_key(self, own: OwnRole) -> SealingKey:
        """That of the running epoch, or of a new one."""
        current = epochs_of(self._folder, own).current(self._now())
        return self._next_epoch(own) if current is None else current[0]

    def _next_epoch(self, own: OwnRole, number: int | None = None) -> SealingKey:
        epochs, seconds = epochs_of(self._folder, own), 86400 * own.epoch_days
        epochs.check_next(seconds, number)  # a number that is refused costs no session
        self._end_helped(own)
        return epochs.begin(self._now(), seconds, number=number)

    def _end_helped(self, own: OwnRole) -> None:
        """Forget the sessions in which a helper's boxes may have been opened."""
        for proposal in self._folder.running():
            if own.party in proposal.helpers:
                self._folder.end(proposal.session)

    def _afford(self, session: Session) -> None:
        """Decline a sum that begins a run, or goes on with one, whose rest this site's budget has no room for.

        Nothing is charged here: a server that never asks for a vector has seen nothing.
        """
        step, ledger = session.step, self._file.ledger
        if ledger is None or step.noise is None:
            return
        try:
            ledger.check(step.noise.releases[step.number :])
        except BudgetExceededError as error:
            raise DeclinedError(str(error)) from error

    def _free(self, session: bytes, failure: bytes) -> None:
        """Take a failed sum out of the journal, where its helpers certify that it failed."""
        for proposal in self._folder.running():
            if failure and proposal.session == session:
                protocol = Session.of(proposal, self._file.roster).protocol
                query_log_of(self._file, self._folder).free(protocol, failure)
                LOG.info("the helpers certify that the sum of session %s failed", session.hex())

    def _draw(self, proposal: TrainingProposal, own: OwnRole) -> SessionKeyPair:
        """A fresh key pair for a sum in which this site would take part."""
        try:
            config = config_of(proposal, self._file.roster)
            pair = SessionKeyPair.generate(MODES[proposal.mode], config, PartySecrets(identity=own.identity))
        except ConfigurationError as error:
            raise DeclinedError(str(error)) from error
        self._agree(proposal.with_announced({own.party: pair.announcement}))
        return pair

    def _parties(self, session: Session) -> Mapping[PartyId, DurableClient]:
        step = session.step
        learner = step.learner
        refusal = self._refuses_name(learner.name) or self._refuses(learner) or self._refuses_model(step)
        found = parties_of(self._file, self._folder, session, self._now(), has_client=not refusal)
        if not found:
            raise DeclinedError(refusal or "this site has no part in this sum: none of its parties is in its terms")
        if refusal:
            LOG.warning("this site's client takes no part: %s", refusal)
        return found

    def _present(self, session: Session, party: PartyId) -> bytes:
        """What a helper says first, which a sum's own messages do not bring."""
        (own,) = (own for own in self._file.helpers if own.party == party)
        return presence_message(session.protocol, party, own.identity)

    def _end_what_is_over(self, proposal: TrainingProposal) -> None:
        """The sessions of a server that is gone, and this run's sum before."""
        self._sweep(spare=proposal.session)
        self._end(proposal.previous)

    def _sweep(self, *, spare: bytes = b"") -> None:
        self._folder.end_older_than(self._now() - 3600 * self._file.forget_hours, spare=spare)
        for own in self._file.helpers:
            if own.role.has_epochs and (epochs := epochs_of(self._folder, own)).has_ended(self._now()):
                self._end_helped(own)
                epochs.erase()

    def _end(self, session: bytes) -> None:
        if session in self._folder.held():
            self._folder.end(session)


def _answers(parties: Mapping[PartyId, DurableClient], requests: Messages) -> Messages:
    if not requests.keys() <= parties.keys():
        raise NoSessionError("this site is asked for a party that it is not in this session")
    return _each(requests, lambda party: parties[party].receive(requests[party]) or b"")


def _each(parties: Iterable[PartyId], say: Callable[[PartyId], bytes]) -> Messages:
    """What these parties say, but for those that refuse to be in the total.

    Raises:
        ConsentRefusedError: some refuse, and nobody else says anything.
    """
    said, refusal = dict[PartyId, bytes](), None
    for party in parties:
        try:
            said[party] = say(party)
        except ConsentRefusedError as error:
            LOG.warning("party %d takes no part: %s", party, error)
            refusal = error
    if refusal is not None and not said:
        raise refusal
    return said
