"""Query log of a site: the totals that its rows entered, so that no two give a client away by their difference.

The question that the query log answers is whether these rows may enter this total. What counts is what may have been
released, whatever the learner, the format or the mode: rows enter one total. A further one costs nothing where nobody
learns more about few clients from it, which takes survivors that were signed; everything else is for the site's owner
to allow, by number. Another question is what is computed of the rows, in whatever total: one thing, and the later sums
of its run. Something else is a further total, too. Whether the noise of a total is paid for is a ledger's question.

Why this holds against a server that lies, and what it rests on: ``docs/explanation/differencing.md``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic_secagg.site.store import SessionStore
from secagg import PartyId, os_entropy
from secagg.differencing import min_difference_size
from secagg.encoding import length_prefixed
from secagg.errors import ConsentRefusedError
from secagg.masked.assumptions import Assumptions
from secagg.policy import ClientPolicy
from secagg.sums import CLIENT_ROLE, FINGERPRINT_BYTES, DataFingerprints, SumProtocol, Survivors

_TAG_BYTES = 8
"""Length of the tag of a row's features. Among n rows two share one by chance with probability n^2 / 2^65; the owner is
asked then."""

_PARTY_BYTES = 4
_DIGEST_BYTES = 32
_OWNER_BYTES = 16

_LOST = b"lost"
"""Begins the name of an entry for totals that were forgotten, which is no digest."""

_HELPED = b"helped"
"""Kind of totals that this party helped to release: their vectors are known by owner and rows, in any cohort."""

_Vector = PartyId | tuple[bytes, bytes]
"""In a client's entries a survivor; in a helper's a survivor's key and rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Place of a sum among those of its run, as far as a client can tell.

    Args:
        session: its session; the sums of a series share one.
        previous: the session that the server names as this run's sum before; empty where there is none.
        configuration: the digest of the learner's configuration.
        computed: the digest of all that determines the sum: configuration and model.
        has_noise: whether its total has noise.
        grown: how many bytes the configuration and all that was learned so far take: more with each sum.
    """

    session: bytes
    previous: bytes = b""
    configuration: bytes = b""
    computed: bytes = b""
    has_noise: bool = False
    grown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A party's part in one total.

    Args:
        subject: the fingerprint of the rows.
        cohort: that of the cohort and its keys.
        run: the run; empty where nobody said one.
        grown: see ``RunPlace``.
        survivors: whose total it is, or of which vectors; None where that was not shown.
        is_allowed: whether it took one of the totals that the owner allows.
        is_clean: whether neither it nor an earlier sum of its run did.
    """

    subject: bytes
    cohort: bytes
    run: bytes
    grown: int
    survivors: frozenset[_Vector] | None
    is_allowed: bool = False
    is_clean: bool = True

    def is_comparable(self, other: _Entry) -> bool:
        """Return whether both are of the same rows and cohort, and this one's survivors were shown."""
        return self.survivors is not None and (self.subject, self.cohort) == (other.subject, other.cohort)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTotal:
    """A total as its owner may see it.

    Args:
        total: the digest of the sum.
        rows: the fingerprint of the rows that are in it; under the query log's own key it tells nothing of them.
        survivors: whose total it is; empty where that was not shown, and where a helper's entry names nobody.
        n_vectors: how many clients are in it; 0 where that was not shown.
        configuration: the digest of the learner's configuration; empty where this site helped, or nobody said one.
        is_help: whether this site helped to release it, and no rows of its own are meant.
        is_allowed: whether it took one of the totals that the owner allows.
        is_loss: whether it stands for totals that were forgotten, which the owner accepted.
    """

    total: bytes
    rows: bytes
    survivors: tuple[PartyId, ...]
    n_vectors: int
    configuration: bytes
    is_help: bool
    is_allowed: bool
    is_loss: bool = False


class QueryLog:
    """The totals that a site's rows, and its help, have been given to. It lies with the site's sessions.

    An entry is on the disk before what it allows is said. Use it while the store is locked.

    Args:
        store: where it is kept, for as long as the rows are used: without it they count as new.
        policy: how many clients a total must leave; what totals combine to must leave as many.
        further_totals: how many totals, or computations, the owner allows beside those that cost nothing.
        refused_tries: how many computations beside the one at hand may have ended in no vector.
    """

    def __init__(
        self, store: SessionStore, *, policy: ClientPolicy, further_totals: int = 0, refused_tries: int = 3
    ) -> None:
        self._store, self._policy = store, policy
        self._further_totals, self._refused_tries = further_totals, refused_tries

    @contextmanager
    def computing(self, protocol: SumProtocol, place: RunPlace) -> Iterator[None]:
        """Let a vector be made of the rows that were noted for a sum: what was made of them before, or a later sum of
        its run, or else one thing alone.

        Whether rows fit what a server asks for shows in whether their site answers, and a vector that left may be in a
        total without its client's consent. So each computation counts from when the rows are touched, which is on the
        disk before they are; one that ends in no vector counts apart, and noisy ones only so.

        Raises:
            ConsentRefusedError: the owner allows no more.
        """
        noted = self._noted(protocol, None)
        subject = noted.subject
        this = (place.computed, subject, place.has_noise)
        if not self._is_computed(place, subject):
            is_allowed = self._check_computation(noted, place)
            self._store.query_log_head.advance(b"computation", place.computed, subject)
            self._store.run(
                "INSERT INTO computations VALUES (?, ?, ?, 0, ?, ?, ?)", *this, noted.run, noted.grown, is_allowed
            )
        yield
        self._store.query_log_head.advance(b"made", place.computed, subject)  # a copy from before knows of no vector
        self._store.run("UPDATE computations SET is_made = 1 WHERE (computed, subject, is_noisy) = (?, ?, ?)", *this)

    def try_beforehand(self, protocol: SumProtocol, rows: ClientRows, place: RunPlace) -> None:
        """Refuse rows as ``note``, ``check``, ``computing`` and ``consent`` would if all clients of a sum are in it.

        Writes into the store as ``note`` does, so give it a copy (``SessionStore.copied``).

        Raises:
            ConsentRefusedError: as they do.
        """
        self.note(protocol, rows, place)
        self.check(protocol)
        noted = self._noted(protocol, None)
        if not self._is_computed(place, noted.subject):
            self._check_computation(noted, place)
        is_shown = protocol.guarantee.messages_after_vector > 0
        self._judge(self._noted(protocol, frozenset(protocol.clients) if is_shown else None), len(protocol.clients))

    def _is_computed(self, place: RunPlace, subject: bytes) -> bool:
        """Return whether this was made of these rows before."""
        this = (place.computed, subject, place.has_noise)
        return bool(
            self._store.run("SELECT 1 FROM computations WHERE (computed, subject, is_noisy) = (?, ?, ?)", *this)
        )

    def _check_computation(self, noted: _Entry, place: RunPlace) -> bool:
        """Return whether to compute this of rows takes one of what the owner allows; refuse it where none is left."""
        self._check_tries(noted.subject)
        is_allowed = not place.has_noise and self._computes_more(noted)
        if is_allowed:
            self._take_one_allowed(
                "this computes something else of them, and two answers about a row say more than one", noted.subject
            )
        return is_allowed

    def _check_tries(self, subject: bytes) -> None:
        """Refuse to touch rows for one thing more where too much came to nothing."""
        ((n_tries,),) = self._store.run("SELECT count(*) FROM computations WHERE subject = ? AND NOT is_made", subject)
        if n_tries > self._refused_tries:
            raise ConsentRefusedError(
                f"{n_tries} computations of these rows ended in no vector, each of which told the server something of "
                "them, and no further one is tried; look into this site's log for what did not fit, and raise "
                "refused_tries under [journal] if its owner agrees"
            )

    def _computes_more(self, noted: _Entry) -> bool:
        """Return whether something was made of some of these rows, and this is no later sum of that run."""
        related = self._related(noted.subject)
        made = [
            (of_run, size)
            for of, of_run, size in self._store.run(
                "SELECT subject, run, grown FROM computations WHERE is_made AND NOT is_noisy"
            )
            if of in related
        ]
        of_run = [size for of, size in made if of == noted.run]
        return bool(made) and (not of_run or max(of_run) >= noted.grown)

    def note(self, protocol: SumProtocol, rows: ClientRows, place: RunPlace | None = None) -> None:
        """Note of which rows a client's vector in a sum is; once this returns it survives a crash.

        Args:
            protocol: the sum.
            rows: as they are, before any format: what a learner makes of them is not asked.
            place: where the sum stands in a run; None for a sum by itself.
        """
        own, (subject, tags) = place or RunPlace(session=b""), self._fingerprint(rows)
        run = b"" if place is None else self._run_of(place, subject)
        self._store.run("INSERT OR IGNORE INTO fingerprints VALUES (?, ?)", subject, tags)
        values = (protocol.digest, subject, own.session, own.configuration, run, own.grown)
        self._store.run("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?, ?)", *values)

    def rows_of(self, protocol: SumProtocol) -> bytes:
        """Return the fingerprint by which a committee's helpers know the rows noted for a sum (``PartySecrets.rows``).

        It is the same for the same rows in whatever sum, and without this site's own key it tells nothing else.
        """
        ((subject,),) = self._store.run("SELECT subject FROM vectors WHERE total = ?", protocol.digest)
        return _mac(self._key(), b"for helpers", subject)[:FINGERPRINT_BYTES]

    def check(self, protocol: SumProtocol) -> None:
        """Refuse rows that could enter a sum's total under no survivors; ask after ``note`` and before they are used.

        A client that is asked for its consent after its vector must not wait for that: the other clients' query logs
        know nothing of these rows, and would let the total be released with them in it.

        Raises:
            ConsentRefusedError: as ``consent`` does.
        """
        is_shown = protocol.guarantee.messages_after_vector > 0
        new = self._noted(protocol, frozenset(protocol.clients) if is_shown else None)
        if self._store.run("SELECT 1 FROM totals WHERE (total, subject) = (?, ?)", protocol.digest, new.subject):
            return
        earlier = self._earlier(new.subject)
        if is_shown:
            known = [entry for entry in earlier if entry.is_comparable(new)]
            is_free_for_some = len(known) == len(earlier) or any(entry.is_clean for entry in known)
            is_refused = not is_free_for_some and not _of_its_run(new, known)
        else:
            is_refused = bool(earlier) and not _continues(new, earlier) and not self._is_paid(new)
        if is_refused:
            reason = self._reason_against(new, earlier, len(protocol.clients))
            self._take_one_allowed(self._in_words(reason, earlier, len(protocol.clients)), new.subject)

    def consent(self, protocol: SumProtocol, survivors: Survivors | None, rows: DataFingerprints | None = None) -> None:
        """Let the rows that were noted for a sum enter its total: a client's ``PartySecrets.consent``.

        Raises:
            ConsentRefusedError: says what was needed, what came and what the owner can do.
        """
        known = None if survivors is None else frozenset[_Vector](survivors)
        written = b"".join(map(_number, sorted(survivors or ())))  # empty where they were not shown: a total has some
        self._enter(protocol, self._noted(protocol, known), written)

    def consent_to_help(
        self, protocol: SumProtocol, survivors: Survivors | None, rows: DataFingerprints | None = None
    ) -> None:
        """Help to release a total: a helper's or key holder's ``PartySecrets.consent``.

        It sees no rows. It tells them apart by what their clients' uploads say of them, in whatever cohort; where these
        say nothing it takes those of one cohort for the same in all sums.

        Raises:
            ConsentRefusedError: says what was needed, what came and what the owner can do.
        """
        if not survivors:
            raise ConsentRefusedError(
                "a helper agrees to a total by its survivors, and none were named; ask with those that it is of"
            )
        keys, unknown = protocol.public_keys.get(CLIENT_ROLE, {}), _cohort(protocol)[:FINGERPRINT_BYTES]
        owners = {
            party: hashlib.sha256(keys.get(party, unknown + _number(party))).digest()[:_OWNER_BYTES]
            for party in survivors
        }
        known = frozenset[_Vector]((owner, (rows or {}).get(party, unknown)) for party, owner in owners.items())
        new = _Entry(subject=_HELPED, cohort=b"", run=b"", grown=0, survivors=known)
        self._enter(protocol, new, b"".join(owner + of for owner, of in sorted(known)))  # type: ignore[misc]

    def free(self, protocol: SumProtocol, proof: bytes) -> None:
        """Take back what was noted for a sum that its helpers certify to have failed: no total of it comes out.

        An entry stays where a later sum was let pass as one of its run: else that sum would count for less than it is.

        Raises:
            RemoteProtocolError: the proof is none.
        """
        protocol.check_failure(proof)
        self._store.run(
            "DELETE FROM totals WHERE total = ? AND NOT EXISTS (SELECT 1 FROM totals AS later WHERE later.run != x'' "
            "AND (later.run, later.subject) = (totals.run, totals.subject) AND later.grown > totals.grown)",
            protocol.digest,
        )

    def sums(self) -> set[bytes]:
        """Return the digests of the sums for which rows were noted, and the sessions of secure means."""
        return {bytes(one) for (one,) in self._store.run("SELECT total FROM vectors UNION SELECT session FROM means")}

    def accept_loss(self, rows: Iterable[ClientRows], *, is_helper: bool = False, missing: Iterable[bytes] = ()) -> int:
        """Go on after entries were forgotten; return how many there were, as far as the second place says.

        Nobody knows what they were: these rows count as being in one more total that nothing can be compared with.

        Args:
            rows: that this site has now.
            is_helper: whether it helps; then all that it helps to release later counts so too.
            missing: the digests of sums that other records of the site name and the query log forgot.
        """
        noted, subjects = self._store.query_log_head.counted(), [_HELPED] * is_helper
        for subject, tags in map(self._fingerprint, rows):
            self._store.run("INSERT OR IGNORE INTO fingerprints VALUES (?, ?)", subject, tags)
            subjects.append(subject)
        for subject in subjects:
            values = (_LOST + os_entropy(16), b"", subject, b"", b"", 0, False, False)
            self._store.run("INSERT INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)
            self._store.run("INSERT OR IGNORE INTO computations VALUES (x'', ?, 0, 1, x'', 0, 0)", subject)
        for digest in missing:
            self._store.run("INSERT OR IGNORE INTO vectors VALUES (?, x'', x'', x'', x'', 0)", digest)
        self._store.query_log_head.accept()  # a crash before leaves the site stopped
        return noted

    def count(self) -> tuple[int, int]:
        """Return the number of totals in it, and of those (or of computations) that its owner had to allow."""
        ((entries, allowed),) = self._store.run("SELECT count(*), coalesce(sum(allowed), 0) FROM totals")
        ((more,),) = self._store.run("SELECT coalesce(sum(allowed), 0) FROM computations")
        return entries, allowed + more

    def totals(self) -> list[LoggedTotal]:
        """Return what is in it, in the order in which it was agreed to."""
        found = []
        for total, written, subject, allowed, configuration in self._store.run(
            "SELECT total, survivors, totals.subject, allowed, coalesce(vectors.configuration, x'') "
            "FROM totals LEFT JOIN vectors USING (total) ORDER BY totals.rowid"
        ):
            is_help = subject == _HELPED
            survivors = () if is_help else tuple(sorted(_read(written) or ()))
            found.append(
                LoggedTotal(
                    total=total,
                    rows=subject,
                    survivors=survivors,
                    n_vectors=len(_vectors(written)) if is_help else len(survivors),
                    configuration=b"" if is_help else configuration,
                    is_help=is_help,
                    is_allowed=bool(allowed),
                    is_loss=total.startswith(_LOST) and len(total) < _DIGEST_BYTES,
                )
            )
        return found

    def _noted(self, protocol: SumProtocol, survivors: frozenset[_Vector] | None) -> _Entry:
        """A client's part in a total of these survivors."""
        noted = self._store.run("SELECT subject, run, grown FROM vectors WHERE total = ?", protocol.digest)
        if not noted:
            raise ConsentRefusedError(
                "the query log must know of which rows a vector is, and was told of none for this sum: call note() "
                "before the vector leaves; or its file was lost, then begin a new session"
            )
        subject, run, grown = noted[0]
        return _Entry(subject=subject, cohort=_cohort(protocol), run=run, grown=grown, survivors=survivors)

    def _enter(self, protocol: SumProtocol, new: _Entry, written: bytes) -> None:
        what = (protocol.digest, written, new.subject)
        if self._store.run("SELECT 1 FROM totals WHERE (total, survivors, subject) = (?, ?, ?)", *what):
            return  # this was agreed to, and what was said then perhaps lost
        is_clean, is_allowed = self._judge(new, len(protocol.clients))
        self._store.query_log_head.advance(*what)
        values = (*what, new.cohort, new.run, new.grown, is_allowed, is_clean)
        self._store.run("INSERT INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)

    def _judge(self, new: _Entry, n_clients: int) -> tuple[bool, bool]:
        """Return whether a total is free, and whether it takes one that the owner allows; refuse it where none is left.

        A total that is neither goes on with one that was let pass before.
        """
        earlier = self._earlier(new.subject)
        is_clean, is_allowed = _adds_nothing(new, [entry for entry in earlier if entry.is_clean]), False
        if not is_clean and not _continues(new, earlier):
            reason = self._reason_against(new, earlier, n_clients)
            is_clean, is_allowed = not reason, bool(reason) and not self._is_paid(new)
            if is_allowed:
                self._take_one_allowed(self._in_words(reason, earlier, n_clients), new.subject)
        return is_clean, is_allowed

    def _take_one_allowed(self, reason: str, subject: bytes) -> None:
        """Refuse what is not free where the owner allows no more."""
        related = self._related(subject)
        used = sum(
            bool(allowed) and of in related
            for of, allowed in self._store.run(
                "SELECT subject, allowed FROM totals UNION ALL SELECT subject, allowed FROM computations"
            )
        )
        if used >= self._further_totals:
            raise ConsentRefusedError(
                f"{reason}. This site takes no further part in this session. Use new rows; or, if the owners of all "
                "sites agree to this total, raise further_totals under [journal] "
                f"({used} of {self._further_totals} are used)"
            )

    def _is_paid(self, new: _Entry) -> bool:
        """Return whether the owner allowed what is computed, and this is the first total of it."""
        run = (new.run, new.subject)
        is_allowed = self._store.run("SELECT 1 FROM computations WHERE (run, subject) = (?, ?) AND allowed", *run)
        return bool(is_allowed) and not self._store.run("SELECT 1 FROM totals WHERE (run, subject) = (?, ?)", *run)

    def _in_words(self, reason: str, earlier: list[_Entry], n_clients: int) -> str:
        return (
            f"these rows, or some of them, are in {totals_in_words(len(earlier))} already, and another total could "
            f"differ from these by fewer than {self._needed(n_clients)} clients, which would expose them: {reason}"
        )

    def _reason_against(self, new: _Entry, earlier: list[_Entry], n_clients: int) -> str:
        """Return why a total is not free; empty if it is."""
        if not earlier:
            return ""
        if new.survivors is None:
            return "a client is not shown who survives in this mode, so it cannot check"
        others = [entry for entry in earlier if not entry.is_comparable(new)]
        if others:
            return (
                f"{len(others)} earlier ones cannot be compared, since their survivors were not shown, or rows or the "
                "roster changed"
            )
        left = min_difference_size([entry.survivors or () for entry in earlier], new.survivors, owner=_owner)
        if left is None:
            return "it is based on a total that the owner allowed"
        return "" if left >= self._needed(n_clients) else f"combined, these leave {left}"

    def _needed(self, n_clients: int) -> int:
        """Return the number of clients that every total must leave by this site's policy, colluders subtracted."""
        corrupt = Assumptions(corruption=self._policy.min_corruption).corrupt(n_clients)
        return max(self._policy.min_survivors, corrupt + 2)

    def _run_of(self, place: RunPlace, subject: bytes) -> bytes:
        """The run: of a computation that was begun before, that one; else by the server's word and configuration.

        So a run that is begun again goes on in no other way than it did, and a series has a run for each configuration.
        """
        for (run,) in self._store.run(
            "SELECT run FROM computations WHERE (computed, subject, is_noisy) = (?, ?, ?)",
            place.computed,
            subject,
            place.has_noise,
        ):
            return bytes(run)
        for session in (place.session, place.previous):
            found = self._store.run(
                "SELECT run FROM vectors WHERE session = ? AND configuration = ? AND run != x''",
                session,
                place.configuration,
            )
            if found:
                return bytes(found[0][0])
        return place.session + place.configuration

    def _earlier(self, subject: bytes) -> list[_Entry]:
        """The totals that hold some of these rows."""
        related = self._related(subject)
        return [
            _Entry(
                subject=of,
                cohort=cohort,
                run=run,
                grown=grown,
                survivors=_vectors(survivors) or None if of == _HELPED else _read(survivors),
                is_allowed=bool(allowed),
                is_clean=bool(clean),
            )
            for survivors, of, cohort, run, grown, allowed, clean in self._store.run(
                "SELECT survivors, subject, cohort, run, grown, allowed, clean FROM totals"
            )
            if of in related
        ]

    def _related(self, subject: bytes) -> set[bytes]:
        """Return these rows and all others of which some have the features of some of these."""
        known = {of: np.frombuffer(tags, dtype="<u8") for of, tags in self._store.run("SELECT * FROM fingerprints")}
        own = known.pop(subject, np.empty(0, dtype="<u8"))
        return {subject, *(other for other, tags in known.items() if np.isin(own, tags).any())}

    def _fingerprint(self, rows: ClientRows) -> tuple[bytes, bytes]:
        """Return the fingerprint of these rows in whatever order, and a tag of each one's features."""
        key, targets = self._key(), rows.targets if rows.targets.ndim > 1 else rows.targets[:, None]
        tags, whole = [], []
        weights = [1] * len(rows) if rows.weights is None else rows.weights.tolist()
        for features, target, weight in zip(_canonical(rows.features), _canonical(targets), weights, strict=True):
            if weight:  # a row of weight 0 enters no total
                tags.append(_mac(key, b"features", features.tobytes())[:_TAG_BYTES])
                heavy = () if weight == 1 else (weight.to_bytes(8, "big"),)
                whole.append(_mac(key, b"row", features.tobytes(), target.tobytes(), *heavy))
        return _mac(key, b"rows", *sorted(whole)), b"".join(tags)

    def _key(self) -> bytes:
        """The site's own key of fingerprints: to whoever lacks it they tell nothing of a row."""
        if not self._store.run("SELECT 1 FROM journal_key"):
            self._store.run("INSERT INTO journal_key VALUES (?)", os_entropy(32))
        return bytes(self._store.run("SELECT content FROM journal_key")[0][0])


def totals_in_words(count: int) -> str:
    """``1 total``, ``2 totals``."""
    return f"{count} total{'' if count == 1 else 's'}"


def _adds_nothing(new: _Entry, agreed: list[_Entry]) -> bool:
    """Return whether a total tells no more than the totals of the same rows that were agreed to before."""
    known = [entry.survivors or () for entry in agreed if entry.is_comparable(new)]
    return new.survivors is not None and min_difference_size(known, new.survivors, owner=_owner) is None


def _of_its_run(new: _Entry, earlier: list[_Entry]) -> list[_Entry]:
    return [entry for entry in earlier if new.run and (entry.run, entry.subject) == (new.run, new.subject)]


def _continues(new: _Entry, earlier: list[_Entry]) -> bool:
    """Return whether a total belongs to a run whose first one was agreed to.

    Where survivors are shown, they follow from those of the run's other totals. Where not, it is a later sum than all
    that were agreed to: helpers see who survives in each, and keep a query log too.
    """
    of_run = _of_its_run(new, earlier)
    if new.survivors is not None:
        return _adds_nothing(new, of_run)
    unseen = all(entry.survivors is None and entry.cohort == new.cohort for entry in of_run)
    return bool(of_run) and unseen and all(entry.grown < new.grown for entry in of_run)


def _cohort(protocol: SumProtocol) -> bytes:
    """A fingerprint of the clients and their keys: under another roster a number may be somebody else."""
    keys = protocol.public_keys.get(CLIENT_ROLE, {})
    clients = [_number(party) + keys.get(party, b"") for party in protocol.clients]
    return hashlib.sha256(length_prefixed(b"cohort", *clients)).digest()


def _canonical(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return values as numbers, so that neither a type nor the sign of a zero makes other rows of them."""
    numbers: NDArray[np.float64] = np.ascontiguousarray(values, dtype=np.float64) + 0.0
    return numbers


def _mac(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 (RFC 2104)."""
    return hmac.digest(key, length_prefixed(*parts), "sha256")


def _owner(vector: object) -> object:
    """Return the owner of a vector: with different rows in several totals, each of its vectors hides it alone."""
    return vector[0] if isinstance(vector, tuple) else vector


def _vectors(written: bytes) -> frozenset[_Vector]:
    """Owners and rows, one after the other."""
    size = _OWNER_BYTES + FINGERPRINT_BYTES
    pairs = (written[place : place + size] for place in range(0, len(written), size))
    return frozenset((pair[:_OWNER_BYTES], pair[_OWNER_BYTES:]) for pair in pairs)


def _read(written: bytes) -> frozenset[PartyId] | None:
    places = range(0, len(written), _PARTY_BYTES)
    return frozenset(int.from_bytes(written[place : place + _PARTY_BYTES], "big") for place in places) or None


def _number(party: PartyId) -> bytes:
    return party.to_bytes(_PARTY_BYTES, "big")
