"""A site's side of a run: a proposal in, first messages out; requests in, answers out. No transport, no threads.

``message_handler.handle_message`` calls a ``Site`` for each message of the server, in this order:

1. ``announce(proposal)``, in modes whose helpers announce a key before the sum (committee, key holder);
2. ``join(proposal)``, once a sum: the first messages of the site's parties;
3. ``answer(session, requests)``, once a round of the protocol;
4. ``end(session, results)``: secrets are forgotten, the model is kept.

``join`` goes through a site once, from the proposal to what leaves:

1. ``store.SessionStore.locked``: one process at a time, and no query log that is behind its second place or knows less
   than the site's other records (``witnesses``);
2. ``admission.admit``: the site's own file and roster allow the proposal, which becomes a ``session.Session``;
3. sealing keys, budget and space on the disk are checked where the session is new, and ``store.SessionStore.begin``
   keeps the proposal;
4. ``parties.SiteParties.restore``: a state machine for each party of the site, as it was stored or fresh;
5. each says its first message. A client's has its vector, or leads to it: rows are noted and checked in the
   ``query_log.QueryLog``, the vector is made of them, and its noise is charged to the ledger before it leaves.

``answer`` takes the stored proposal through steps 1, 2 and 4, so that a process that died is no loss. A call that
raises leaves what was stored before. What happened stays in the site's own log; the server gets a code.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from analytic.learner import ClientRows
from analytic_secagg.modes import find_mode
from analytic_secagg.site.admission import admit, check_budget, refuse_extensions
from analytic_secagg.site.disk import check_state
from analytic_secagg.site.errors import DeclinedError, NoSessionError, SiteFileError
from analytic_secagg.site.key_pair import SessionKeyPair
from analytic_secagg.site.parties import KEY_PAIR, SiteParties, epochs_of, query_log_of
from analytic_secagg.site.presence import presence_message
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.query_log import LoggedTotal
from analytic_secagg.site.query_log_head import REMEDY
from analytic_secagg.site.results import RunResults
from analytic_secagg.site.session import Session, config_of
from analytic_secagg.site.site_file import OwnRole, SiteFile
from analytic_secagg.site.store import SessionStore
from analytic_secagg.site.witnesses import has_results, missing_sums
from secagg import PartyId, PartySecrets
from secagg.committee import RollbackProtection, SealingKey
from secagg.durable import DurableClient
from secagg.errors import ConfigurationError, ConsentRefusedError, PolicyError

LOG = logging.getLogger("analytic_secagg.site")
"""The site's own log; it stays on the site's host."""

Messages = Mapping[PartyId, bytes]
"""Messages by party; empty bytes state that a party is present and has nothing to send yet."""


class Site:
    """One site. Every call may come in a new process: what lasts lies in the site's own folder.

    Args:
        file: what the site believes.
        now: the time in seconds of the epoch.
    """

    def __init__(self, file: SiteFile, *, now: Callable[[], float] = time.time) -> None:
        self._file, self._now = file, now
        parties = [] if file.client is None else [f"client {file.client.party}"]
        parties += [f"{own.role.name} {own.party}" for own in file.helpers]
        self._store = SessionStore(file.state, now=now, head=file.journal.head, parties=tuple(parties))

    def announce(self, proposal: TrainingProposal) -> Messages:
        """Return what this site's helpers announce to everybody before a sum; nothing where it has none of the sum's.

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
        refuse_extensions(self._file, (), proposal.mode)
        if find_mode(proposal.mode).announce is None:
            raise DeclinedError(f"in the mode {proposal.mode} {of_sum[0].role.name}s announce nothing")
        with self._serving():
            self._end_what_is_over(proposal)
            if of_sum[0].role.has_epochs:
                return {own.party: self._sealing_key(own).to_bytes() for own in of_sum}
            (own,) = of_sum
            record, key = self._store.key_pair(proposal.session), self._file.state_key(KEY_PAIR, proposal.session)
            stored = SessionKeyPair.load(record, key)
            pair = stored or self._draw(proposal, own)
            self._store.begin(proposal.without_announcements)
            if stored is None:
                pair.save(record, key)
            return {own.party: pair.announcement}

    def begin_epoch(self, *, number: int | None = None) -> Mapping[PartyId, SealingKey]:
        """End the running epoch of each of this site's helpers, erase its secret and begin the next one.

        Sessions that hold what was sealed to the old key are over with it.

        Args:
            number: of the new epoch, where the folder was lost; None for the next.

        Raises:
            ConfigurationError: a number that is not larger than the last one.
        """
        with self._store.locked():
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
            SiteFileError: the query log is not to be trusted, or the disk has no room for the sum; no row was read.
        """
        with self._serving():
            self._end_what_is_over(proposal)
            session, refusal = admit(self._file, proposal)
            if proposal.session not in self._store.held():
                self._accept_epochs(session)
                check_budget(self._file, session)
                check_state(self._file, session.protocol)
            self._store.begin(proposal)
            parties = self._parties(session, refusal)
            if proposal.place > 1:
                return _answers(parties, requests or {})
            return _each(parties, lambda party: parties[party].start() or self._present(session, party))

    def answer(self, session: bytes, requests: Messages) -> Messages:
        """The answers to the server's requests; the same ones if this was asked last.

        Raises:
            NoSessionError: no such session is running, or a party that this site is not.
            SecureSumError: the server broke the protocol.
        """
        with self._store.locked():
            self._sweep(spare=session)
            return _answers(self._parties(*admit(self._file, self._store.proposal(session))), requests)

    def end(self, session: bytes, results: RunResults | None = None, failure: bytes = b"") -> None:
        """Forget a session's secrets and keep what its run ended in; one that is not running is left as it is.

        Args:
            session: which.
            results: what the server gives, if there is something.
            failure: what proves that the session's sum failed; then the query log counts it no more.

        Raises:
            WireError: results that the server did not sign, or no model. The session is over all the same.
            RemoteProtocolError: no proof. The session is over, and its sum counts.
        """
        with self._store.locked():
            is_running = session in self._store.held()
            try:
                self._free(session, failure)
            finally:
                self._end(session)
                self._sweep()
            if results is not None and is_running:
                results.check(self._file.roster.server, session)
                refuse_extensions(self._file, results.learner_names)
                self._file.kept.keep(results)

    def sweep(self) -> None:
        """Forget the sessions of servers that are gone.

        Raises:
            SiteFileError: the query log is not to be trusted, or its file is damaged or cannot be written to.
        """
        with self._serving():
            self._sweep()
            self._store.check()

    def accept_loss(self) -> int:
        """Go on with a query log that forgot entries; return how many its second place counted.

        The rows that this site has now count as being in a total that nothing can be compared with. That it was
        accepted stays in the query log and in the site's own log.

        Raises:
            SiteFileError: the query log has all entries that are known of, so that nothing is to be accepted.
        """
        client = self._file.client
        rows = [] if client is None else [client.rows()]
        if client is not None:
            with suppress(SiteFileError):  # most keep none for judging
                rows.append(client.test_rows())
        with self._store.locked(is_behind=True):
            log, head = query_log_of(self._file, self._store), self._store.query_log_head
            if not (problem := head.problem() or self._problem()):
                raise SiteFileError(
                    f"the query log has all entries that {head.path} counts, and all sums that this site's other "
                    "records name: there is no loss to accept"
                )
            missing = missing_sums(self._file, log.sums())
            n_entries = log.accept_loss(rows, is_helper=bool(self._file.helpers), missing=missing)
            LOG.warning("this site's owner accepted a loss with the command accept-loss: %s", problem)
            return n_entries

    def count_totals(self) -> tuple[int, int]:
        """Return the number of totals that this site took part in, and of those that its owner had to allow."""
        with self._store.locked():
            return query_log_of(self._file, self._store).count()

    def try_rows(self, session: Session, rows: ClientRows) -> None:
        """Refuse rows that the query log would not let into a sum in which all clients are; changes nothing.

        Raises:
            ConsentRefusedError: says what was needed, what came and what the owner can do.
            SiteFileError: a sum is at work, or the file does not read.
        """
        with self._store.copied() as is_there:
            if is_there:  # else no row of this site was in a total
                SiteParties(file=self._file, store=self._store, session=session, now=self._now()).try_rows(rows)

    @contextmanager
    def logging_means(self) -> Iterator[SessionStore]:
        """Lock the log of secure means, which lies with the query log and is lost with it.

        Raises:
            SiteFileError: the query log is not to be trusted, or the disk is full.
        """
        with self._serving():
            yield self._store

    def means(self) -> list[str]:
        """Return the lines of the log of secure means; changes nothing.

        Raises:
            SiteFileError: a sum is at work, or the file is damaged.
        """
        with self._store.reading() as is_there:
            return self._store.means() if is_there else []

    def look(self, *, check: bool = False) -> tuple[list[LoggedTotal], int] | None:
        """Return the totals that this site has had part in, and how many sessions' secrets are kept; changes nothing.

        Args:
            check: whether to look at every page of the file too.

        Returns:
            None where there is no query log.

        Raises:
            SiteFileError: a sum is at work, or the file is damaged or, if checked, behind its second place.
        """
        with self._store.reading() as is_there:
            if check and (problem := self._store.query_log_head.problem(is_there=is_there)):
                raise SiteFileError(problem)
            if check and (problem := self._problem(is_there=is_there)):
                raise SiteFileError(problem)
            if not is_there:
                return None
            if check:
                self._store.check()
            return query_log_of(self._file, self._store).totals(), len(self._store.held())

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Lock the site's folder for its part in a sum.

        Raises:
            SiteFileError: as ``SessionStore.locked``, or other records know of sums that the query log forgot.
        """
        with self._store.locked():
            if problem := self._problem():
                raise SiteFileError(problem)
            yield

    def _problem(self, *, is_there: bool = True) -> str:
        """Return why a query log that its second place agrees to forgot sums all the same; empty if it did not."""
        missing = missing_sums(self._file, query_log_of(self._file, self._store).sums() if is_there else ())
        is_empty = not is_there or (self._store.query_log_head.is_empty and not self._store.is_used)
        if missing:
            what = "lost" if is_empty else "restored from an older copy"
            return (
                f"{what}: the query log must know all sums of this site's rows, and knows nothing of {len(missing)}, "
                f"such as the one that {next(iter(missing.values()))} names; {self._store.query_log_head.path} was "
                f"lost or set back with it. {REMEDY}"
            )
        if is_empty and has_results(self._file):
            return (
                f"lost: {self._file.kept.folder} holds results of runs, and the query log is new and knows of no "
                f"session; {self._store.query_log_head.path} was lost or set back with it. (Where that folder is "
                f"another site's, name one of its own as results.) {REMEDY}"
            )
        return ""

    def _accept_epochs(self, session: Session) -> None:
        """Decline a sum whose boxes would be sealed to a key of an epoch that is over, or before one accepted here."""
        if session.mode.helper is None or not session.mode.helper.has_epochs:
            return
        config = session.config
        keys = {config.helper_keys[party]: SealingKey.from_bytes(said) for party, said in config.announced.items()}
        try:
            RollbackProtection(self._store.lasting("accepted epochs")).accept(keys, self._now())
        except PolicyError as error:
            raise DeclinedError(str(error)) from error

    def _sealing_key(self, own: OwnRole) -> SealingKey:
        """Return the sealing key of the running epoch, or of a new one."""
        current = epochs_of(self._store, own).current(self._now())
        return self._next_epoch(own) if current is None else current[0]

    def _next_epoch(self, own: OwnRole, number: int | None = None) -> SealingKey:
        epochs, seconds = epochs_of(self._store, own), 86400 * own.epoch_days
        epochs.check_next(seconds, number)  # a number that is refused costs no session
        self._end_helped(own)
        return epochs.begin(self._now(), seconds, number=number)

    def _end_helped(self, own: OwnRole) -> None:
        """Forget the sessions in which a helper's boxes may have been opened."""
        for proposal in self._store.running():
            if own.party in proposal.helpers:
                self._store.end(proposal.session)

    def _free(self, session: bytes, failure: bytes) -> None:
        """Take a failed sum out of the query log and the ledger, where its helpers certify that it failed."""
        for proposal in self._store.running():
            if failure and proposal.session == session:
                refuse_extensions(self._file, proposal.learner_names, proposal.mode)
                protocol = Session.of(proposal, self._file.roster).protocol
                query_log_of(self._file, self._store).free(protocol, failure)
                LOG.info("the helpers certify that the sum of session %s failed", session.hex())
                if self._file.ledger is not None and self._file.ledger.void(session_id=protocol.digest, proof=failure):
                    LOG.info("what its noise was charged is given back")

    def _draw(self, proposal: TrainingProposal, own: OwnRole) -> SessionKeyPair:
        """A fresh key pair for a sum in which this site would take part."""
        refuse_extensions(self._file, proposal.learner_names, proposal.mode)
        try:
            config = config_of(proposal, self._file.roster)
            pair = SessionKeyPair.generate(find_mode(proposal.mode), config, PartySecrets(identity=own.identity))
        except ConfigurationError as error:
            raise DeclinedError(str(error)) from error
        admit(self._file, proposal.with_announced({own.party: pair.announcement}))
        return pair

    def _parties(self, session: Session, refusal: str) -> Mapping[PartyId, DurableClient]:
        """Return the state machines of this site's parties; its client takes no part where a refusal says why."""
        if refusal:
            LOG.warning("this site's client takes no part: %s", refusal)
        kept = SiteParties(file=self._file, store=self._store, session=session, now=self._now(), has_client=not refusal)
        return kept.restore()

    def _present(self, session: Session, party: PartyId) -> bytes:
        """Return a helper's first message, by which it only says that it is here."""
        (own,) = (own for own in self._file.helpers if own.party == party)
        return presence_message(session.protocol, party, own.identity)

    def _end_what_is_over(self, proposal: TrainingProposal) -> None:
        """The sessions of a server that is gone, and this run's sum before."""
        self._sweep(spare=proposal.session)
        self._end(proposal.previous)

    def _sweep(self, *, spare: bytes = b"") -> None:
        self._store.end_older_than(self._now() - 3600 * self._file.forget_hours, spare=spare)
        for own in self._file.helpers:
            if own.role.has_epochs and (epochs := epochs_of(self._store, own)).has_ended(self._now()):
                self._end_helped(own)
                epochs.erase()

    def _end(self, session: bytes) -> None:
        if session in self._store.held():
            self._store.end(session)


def _answers(parties: Mapping[PartyId, DurableClient], requests: Messages) -> Messages:
    if not requests.keys() <= parties.keys():
        raise NoSessionError("this site is asked for a party that it is not in this session")
    return _each(requests, lambda party: parties[party].receive(requests[party]) or b"")


def _each(parties: Iterable[PartyId], say: Callable[[PartyId], bytes]) -> Messages:
    """Collect the parties' messages; skip parties that refuse to be in the total.

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
