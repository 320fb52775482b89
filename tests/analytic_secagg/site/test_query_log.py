"""The query log by itself: which rows are the same, what is free, what counts, and that it outlives a crash."""

from __future__ import annotations

import hmac
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from support.parties import key_of, signed

from analytic import ClientRows
from analytic_secagg.site.query_log import QueryLog, RunPlace
from analytic_secagg.site.store import FILE, SessionStore
from secagg import (
    CommitteeSum,
    IdentityKey,
    InOneProcess,
    IntVector,
    Layout,
    MaskedSum,
    PartyId,
    SumProtocol,
    new_session_id,
    os_entropy,
    run_in_memory,
)
from secagg.committee.messages import SET_LABEL, SetCertificate, set_hash
from secagg.errors import ConsentRefusedError, RemoteProtocolError
from secagg.policy import ClientPolicy
from secagg.primitives.boxes import BoxKey
from secagg.sums import Consent, Survivors

LAYOUT = Layout.of([("sum", 2, 100)])
CLIENTS = tuple(range(1, 11))
KEYS = {party: IdentityKey.generate().public for party in CLIENTS}
SERVER_KEY = IdentityKey.generate().public
OTHER_KEYS = KEYS | {10: IdentityKey.generate().public}
HELPERS = ((101, BoxKey.generate(os_entropy).public),)
EVERYBODY = CLIENTS

FEATURES = np.arange(12.0).reshape(6, 2) - 3.0
LABELS = np.array([0, 1, 2, 0, 1, 2])
ROWS = ClientRows(FEATURES, LABELS)


def masked(keys: dict[PartyId, bytes] = KEYS) -> MaskedSum:
    return MaskedSum(
        layout=LAYOUT,
        clients=CLIENTS,
        session_id=new_session_id(),
        threshold=8,
        identities=tuple(keys.values()),
        server_identity=SERVER_KEY,
    )


def committee() -> CommitteeSum:
    return CommitteeSum(
        layout=LAYOUT, clients=CLIENTS, session_id=new_session_id(), helper_keys=HELPERS, min_survivors=5
    )


@contextmanager
def journal(tmp_path: Path, further_totals: int = 0, *, min_corruption: float = 0.2) -> Iterator[QueryLog]:
    folder = SessionStore(tmp_path / "state")
    with folder.locked():
        policy = ClientPolicy(min_corruption=min_corruption)
        yield QueryLog(folder, policy=policy, further_totals=further_totals)


def without(*lost: PartyId) -> tuple[PartyId, ...]:
    return tuple(party for party in CLIENTS if party not in lost)


def enter(
    own: QueryLog,
    survivors: tuple[PartyId, ...] | None = EVERYBODY,
    rows: ClientRows = ROWS,
    protocol: SumProtocol | None = None,
    place: RunPlace | None = None,
) -> None:
    protocol = protocol or (masked() if survivors is not None else committee())
    own.note(protocol, rows, place)
    own.consent(protocol, survivors)


@pytest.mark.parametrize(
    ("same", "rows"),
    [
        (True, ClientRows(FEATURES[::-1], LABELS[::-1])),
        (True, ClientRows(FEATURES.astype(np.float32), LABELS.astype(np.uint8))),
        (True, ClientRows(FEATURES.astype(np.int16), LABELS.astype(np.float64)[:, None])),
        (True, ClientRows(np.asfortranarray(FEATURES), LABELS)),
        (False, ClientRows(FEATURES[:-1], LABELS[:-1])),
        (False, ClientRows(FEATURES, LABELS[::-1])),
        (False, ClientRows(np.vstack([FEATURES, FEATURES[:1]]), np.append(LABELS, 0))),
        (False, ClientRows(np.vstack([FEATURES[:1], FEATURES + 100]), np.append(LABELS, 0))),
    ],
    ids=["order", "float32", "integers", "memory", "one less", "labels", "one twice", "one of them among others"],
)
def test_rows_are_known_again(tmp_path: Path, same: bool, rows: ClientRows) -> None:
    """The same rows may enter the same group's total; where a row less or more could be told by it, they may not."""
    with journal(tmp_path) as own:
        enter(own)
        if same:
            with pytest.raises(ConsentRefusedError, match="these leave 1"):  # as new rows they would be free
                enter(own, without(1), rows=rows)
            enter(own, rows=rows)
            return
        with pytest.raises(ConsentRefusedError, match="rows or the roster changed"):
            enter(own, rows=rows)


def test_other_rows_are_free(tmp_path: Path) -> None:
    with journal(tmp_path) as own:
        enter(own)
        enter(own, without(1), rows=ClientRows(FEATURES + 100.0, LABELS))
        enter(own, None, rows=ClientRows(FEATURES + 200.0, LABELS))
        enter(own, without(2), rows=ClientRows(FEATURES[:0], LABELS[:0]))
        assert own.count() == (4, 0)


@pytest.mark.parametrize(
    ("totals", "min_corruption", "is_free"),
    [
        ([EVERYBODY, EVERYBODY, EVERYBODY], 0.2, True),
        ([EVERYBODY, without(1)], 0.2, False),
        ([EVERYBODY, without(1, 2, 3)], 0.2, False),
        ([EVERYBODY, without(1, 2, 3, 4)], 0.2, True),
        ([EVERYBODY, without(1, 2, 3)], 0.1, True),
        ([EVERYBODY, without(1, 2)], 0.0, False),
        ([without(1, 2), without(3, 4)], 0.2, True),
        ([EVERYBODY, without(1, 2, 3, 4), EVERYBODY, without(1, 2, 3, 4)], 0.2, True),
        # T1 + T2 - T3 leaves client 1, where each pair differs by four or more.
        ([(1, 2, 3, 4, 5), (1, 6, 7, 8, 9), (1, 2, 3, 4, 5, 6, 7, 8, 9)], 0.2, False),
    ],
)
def test_what_totals_combine_to_leaves_as_many_as_a_total_must(
    tmp_path: Path, totals: list[tuple[PartyId, ...]], min_corruption: float, is_free: bool
) -> None:
    """Of 10 clients a fifth may collude: two of them taken off, two others must be left; by the default three."""
    with journal(tmp_path, min_corruption=min_corruption) as own:
        for survivors in totals[:-1]:
            enter(own, survivors)
        if is_free:
            return enter(own, totals[-1])
        with pytest.raises(ConsentRefusedError, match=r"these leave [123]"):
            enter(own, totals[-1])
    return None


def check(own: QueryLog, rows: ClientRows, protocol: SumProtocol | None = None, place: RunPlace | None = None) -> None:
    protocol = protocol or masked()
    own.note(protocol, rows, place)
    own.check(protocol)


def test_rows_that_no_survivors_let_pass_are_refused_before_their_vector_leaves(tmp_path: Path) -> None:
    """What depends on who survives is left to the consent; and a check enters nothing."""
    more = ClientRows(np.vstack([FEATURES, FEATURES[:1] + 50.0]), np.append(LABELS, 0))
    with journal(tmp_path) as own:
        check(own, ROWS)
        enter(own)
        for free in (ROWS, ClientRows(FEATURES + 100.0, LABELS), ClientRows(FEATURES[:0], LABELS[:0])):
            check(own, free)
        with pytest.raises(ConsentRefusedError, match=r"rows or the roster changed.* \(0 of 0 are used\)"):
            check(own, more)
        with pytest.raises(ConsentRefusedError, match="the roster changed"):
            check(own, ROWS, masked(OTHER_KEYS))
        assert own.count() == (1, 0)
    with journal(tmp_path, further_totals=1) as own:
        check(own, more)
        enter(own, rows=more, place=place(0, b"s"))
        check(own, more, place=place(1, b"s"))  # of the run that the owner allowed
        with pytest.raises(ConsentRefusedError, match=r"\(1 of 1 are used\)"):
            check(own, more)
    with pytest.raises(ConsentRefusedError, match="call note"), journal(tmp_path) as own:
        own.check(masked())


def test_rows_that_were_given_away_unseen_are_refused_before_their_vector_leaves(tmp_path: Path) -> None:
    with journal(tmp_path) as own:
        enter(own, None)
        with pytest.raises(ConsentRefusedError, match="their survivors were not shown"):
            check(own, ROWS)


def test_another_roster_is_not_compared(tmp_path: Path) -> None:
    """A number may be somebody else's now, and a key may be the same client's."""
    with journal(tmp_path) as own:
        enter(own)
        with pytest.raises(ConsentRefusedError, match="the roster changed"):
            enter(own, protocol=masked(OTHER_KEYS))


@pytest.mark.parametrize("first", [EVERYBODY, None], ids=["shown", "not shown"])
def test_survivors_that_are_not_shown_are_never_free(tmp_path: Path, first: tuple[PartyId, ...] | None) -> None:
    with journal(tmp_path) as own:
        enter(own, first)
        with pytest.raises(ConsentRefusedError, match="not shown who survives"):
            enter(own, None)
        if first is None:
            with pytest.raises(ConsentRefusedError, match="their survivors were not shown"):
                enter(own)


def test_the_owner_s_allowance_is_used_up(tmp_path: Path) -> None:
    """One for each total that is not free; what was allowed makes nothing else free."""
    with journal(tmp_path, further_totals=2) as own:
        enter(own)
        enter(own, without(1))
        enter(own, without(2))
        assert own.count() == (3, 2)
        with pytest.raises(ConsentRefusedError, match=r"based on a total that the owner allowed.* \(2 of 2 are used\)"):
            enter(own, without(1))
        enter(own)
        assert own.count() == (4, 2)


def test_its_owner_sees_every_total_in_order(tmp_path: Path) -> None:
    sums = [masked(), masked(), committee(), committee()]
    with journal(tmp_path, further_totals=1) as own:
        enter(own, protocol=sums[0])
        enter(own, without(1), protocol=sums[1])
        enter(own, None, ClientRows(FEATURES + 100.0, LABELS), protocol=sums[2])
        own.consent_to_help(sums[3], without(1, 2))
        found = own.totals()
    assert [noted.total for noted in found] == [one.digest for one in sums]
    assert [noted.survivors for noted in found] == [EVERYBODY, without(1), (), ()]
    assert [noted.n_vectors for noted in found] == [10, 9, 0, 8]
    assert [noted.is_help for noted in found] == [False, False, False, True]
    assert [noted.is_allowed for noted in found] == [False, True, False, False]
    assert len(found[0].rows) == 32
    assert found[0].rows == found[1].rows
    assert len({noted.rows for noted in found}) == 3


def test_it_is_asked_again_after_a_crash(tmp_path: Path) -> None:
    """The same total of the same rows was agreed to; other survivors, or rows that changed meanwhile, were not."""
    protocol, changed = masked(), ClientRows(FEATURES[:-1], LABELS[:-1])
    with journal(tmp_path) as own:
        enter(own, protocol=protocol)
    with journal(tmp_path) as own:
        enter(own, protocol=protocol)
        assert own.count() == (1, 0)
        with pytest.raises(ConsentRefusedError, match="leave 1"):
            enter(own, without(1), protocol=protocol)
        with pytest.raises(ConsentRefusedError, match="rows or the roster changed"):
            enter(own, rows=changed, protocol=protocol)


def test_rows_that_nobody_noted_enter_nothing(tmp_path: Path) -> None:
    """Whoever forgets to say which rows a vector is of learns it from the first sum."""
    with journal(tmp_path) as own, pytest.raises(ConsentRefusedError, match=r"call note\(\) before the vector leaves"):
        own.consent(masked(), EVERYBODY)


def place(number: int, session: bytes, previous: bytes = b"", configuration: bytes = b"deep") -> RunPlace:
    return RunPlace(session=session, previous=previous, configuration=configuration, grown=100 + number)


SESSIONS = [bytes([number]) * 16 for number in range(5)]


def test_a_run_whose_survivors_are_not_shown_is_one_entry(tmp_path: Path) -> None:
    """Its sums come once each and in order; then it is over. What the helpers keep says who may be lost in between."""
    with journal(tmp_path) as own:
        for number, session in enumerate(SESSIONS[:3]):
            enter(own, None, place=place(number, session, SESSIONS[number - 1] if number else b""))
        assert own.count() == (3, 0)
        for again in (1, 2):
            with pytest.raises(ConsentRefusedError, match="not shown who survives"):
                enter(own, None, place=place(again, SESSIONS[4], SESSIONS[2]))


@pytest.mark.parametrize(
    "later",
    [
        lambda: {"place": place(1, SESSIONS[1], SESSIONS[0], b"another configuration")},
        lambda: {"place": place(1, SESSIONS[1], SESSIONS[3])},
        lambda: {"place": place(1, SESSIONS[1])},
        lambda: {"place": place(0, SESSIONS[1], SESSIONS[0])},
        lambda: {"place": place(1, SESSIONS[1], SESSIONS[0]), "rows": ClientRows(FEATURES[:-1], LABELS[:-1])},
        lambda: {"place": None},
    ],
    ids=["configuration", "another run", "no run", "the same sum", "other rows", "no place"],
)
def test_what_a_server_says_of_a_run_must_fit(tmp_path: Path, later: Callable[[], dict[str, RunPlace]]) -> None:
    with journal(tmp_path) as own:
        enter(own, None, place=place(0, SESSIONS[0]))
        with pytest.raises(ConsentRefusedError, match="not shown who survives"):
            enter(own, None, **later())  # type: ignore[arg-type]


def test_a_client_lost_between_the_sums_of_a_run_ends_it(tmp_path: Path) -> None:
    """Also in a series, whose sums share a session; an allowance is for the group that is left in the rest of it."""
    series = [place(number, SESSIONS[0]) for number in range(4)]
    with journal(tmp_path) as own:
        for one in series[:2]:
            enter(own, place=one)
        with pytest.raises(ConsentRefusedError, match="these leave 1"):
            enter(own, without(3), place=series[2])
    with journal(tmp_path, further_totals=1) as own:
        for one in series[2:]:
            enter(own, without(3), place=one)
        assert own.count() == (4, 1)
        with pytest.raises(ConsentRefusedError, match="1 of 1 are used"):
            enter(own, without(3, 4), place=place(4, SESSIONS[0]))


def that_fails() -> tuple[SumProtocol, bytes]:
    """A sum, and the word of its helpers that it failed."""
    cohort = CommitteeSum.generate(
        layout=LAYOUT, clients=CLIENTS, session_id=new_session_id(), n_helpers=4, corrupt_helpers=1
    )
    protocol = signed(cohort).protocol
    signatures = {
        helper: key_of(helper).sign(SET_LABEL, set_hash(protocol.digest, {})) for helper in protocol.helpers[:3]
    }
    return protocol, SetCertificate(survivors=(), signatures=signatures).to_payload()


def test_a_sum_that_its_helpers_certify_to_have_failed_counts_no_more(tmp_path: Path) -> None:
    (first, proof), (second, of_second) = that_fails(), that_fails()
    with journal(tmp_path) as own:
        enter(own, None, protocol=first)
        with pytest.raises(RemoteProtocolError, match="3 helpers of this very sum must have signed"):
            own.free(first, of_second)
        with pytest.raises(RemoteProtocolError, match="nobody certifies that a masked sum failed"):
            own.free(masked(), of_second)
        with pytest.raises(ConsentRefusedError, match="not shown who survives"):
            enter(own, None, protocol=second)
        own.free(first, proof)
        enter(own, None, protocol=second)
        assert own.count() == (1, 0)


def test_what_a_run_went_on_from_counts_on(tmp_path: Path) -> None:
    """Else a server would have sums fail afterwards that the owner allowed, and use each allowance for ever."""
    sums = [that_fails() for _ in range(3)]
    with journal(tmp_path, further_totals=1) as own:
        for (protocol, _), at in zip(
            sums, [None, place(0, SESSIONS[0]), place(1, SESSIONS[1], SESSIONS[0])], strict=True
        ):
            enter(own, None, protocol=protocol, place=at)
        own.free(*sums[1])
        assert own.count() == (3, 1)
        own.free(*sums[2])
        own.free(*sums[1])
        assert own.count() == (1, 0)


def test_a_helper_keeps_one_for_each_cohort(tmp_path: Path) -> None:
    """It sees no rows, and takes those of one cohort for the same, whatever the context and the run."""
    with journal(tmp_path) as own:
        own.consent_to_help(committee(), EVERYBODY)
        own.consent_to_help(committee(), EVERYBODY)
        with pytest.raises(ConsentRefusedError, match="these leave 1"):
            own.consent_to_help(committee(), without(1))
        own.consent_to_help(masked(), without(1))
        enter(own, without(2))


def test_a_helper_knows_rows_again_in_any_cohort_and_lets_new_ones_pass(tmp_path: Path) -> None:
    """What uploads say of their rows tells them apart: a client that is in a total with two sets of rows hides one."""
    old, new = ({party: bytes([which, party]) * 8 for party in CLIENTS} for which in (1, 2))
    with journal(tmp_path) as own:
        own.consent_to_help(masked(), EVERYBODY, old)
        with pytest.raises(ConsentRefusedError, match="these leave 1"):
            own.consent_to_help(masked(OTHER_KEYS), without(10), old)
        with pytest.raises(ConsentRefusedError, match="these leave 1"):
            own.consent_to_help(masked(), EVERYBODY, old | {3: new[3]})
        with pytest.raises(ConsentRefusedError, match="these leave 3"):
            own.consent_to_help(masked(), EVERYBODY, old | {party: new[party] for party in (3, 4, 5)})
        own.consent_to_help(masked(), EVERYBODY, old)
        own.consent_to_help(masked(), without(1), new)
        with pytest.raises(ConsentRefusedError, match="these leave 1"):
            own.consent_to_help(masked(), without(1, 2), new)
        own.consent_to_help(masked(OTHER_KEYS), without(1, 2, 3, 4, 5), old)
        assert own.count() == (4, 0)
    with journal(tmp_path) as own, pytest.raises(ConsentRefusedError, match="these leave 1"):
        own.consent_to_help(masked(), without(7), old)


@pytest.mark.parametrize("nobody", [None, ()])
def test_a_helper_that_is_not_told_whose_total_it_is_does_not_help(nobody: Survivors | None, tmp_path: Path) -> None:
    with journal(tmp_path) as own:
        with pytest.raises(ConsentRefusedError, match="none were named"):
            own.consent_to_help(committee(), nobody)
        assert own.count() == (0, 0)


def test_helpers_see_through_two_sums_over_the_same_rows(tmp_path: Path) -> None:
    """Another session, context and cohort; one client is called lost. Without journals the difference is its vector."""
    cohort = CommitteeSum.generate(
        layout=LAYOUT, clients=CLIENTS, session_id=new_session_id(), n_helpers=4, corrupt_helpers=1, min_survivors=5
    )
    vectors = {party: np.full(LAYOUT.size, party, dtype=np.int64) for party in CLIENTS}

    def totals(consents: dict[PartyId, Consent], *, tells: bool) -> list[IntVector]:
        found = list[IntVector]()
        for number, lost in enumerate([{}, {10: 0}]):
            protocol = replace(cohort.protocol, session_id=new_session_id(), context=bytes([number]))
            parties = signed(InOneProcess(protocol=protocol, secrets=cohort.secrets))
            secrets = {
                party: replace(
                    own, consent=consents.get(party), data_fingerprint=partial(bytes, [party] * 16) if tells else None
                )
                for party, own in parties.secrets.items()
            }
            found.append(run_in_memory(replace(parties, secrets=secrets), vectors, dropouts=lost).result.total)
        return found

    first, second = totals({}, tells=True)
    assert (first - second).tolist() == vectors[10].tolist()
    with ExitStack() as stack:
        journals = {party: stack.enter_context(journal(tmp_path / str(party))) for party in cohort.helpers}
        with pytest.raises(ConsentRefusedError, match="these leave 1"):
            totals({party: own.consent_to_help for party, own in journals.items()}, tells=True)
        assert [own.count() for own in journals.values()] == [(1, 0)] * 4


def test_a_file_without_its_key_tells_nothing_of_a_row(tmp_path: Path) -> None:
    """And two sites' fingerprints of the same rows have nothing in common."""
    contents = []
    for name in ("one", "two"):
        with journal(tmp_path / name) as own:
            enter(own)
        contents.append((tmp_path / name / "state" / FILE).read_bytes())
        assert not any(row.tobytes() in contents[-1] for row in (*FEATURES, *FEATURES.astype(np.float32)))
    folders = [SessionStore(tmp_path / name / "state") for name in ("one", "two")]
    with folders[0].locked(), folders[1].locked():
        ((one, tags), (two, others)) = (folder.run("SELECT * FROM fingerprints")[0] for folder in folders)
    assert one != two
    assert not np.isin(np.frombuffer(tags, "<u8"), np.frombuffer(others, "<u8")).any()


def by_hand(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 over length-prefixed parts."""
    return hmac.digest(key, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256")


def test_a_row_is_known_again_by_a_tag_of_any_bits(tmp_path: Path) -> None:
    """Read as a float, one tag in 2048 would be a NaN, which equals nothing: here is a row that has one."""
    with journal(tmp_path) as own:
        enter(own)
        ((key,),) = own._store.run("SELECT * FROM journal_key")
        tags = ((number, by_hand(key, b"features", struct.pack("<2d", number, 0.0))[:8]) for number in count(100))
        number = next(number for number, tag in tags if math.isnan(struct.unpack("<d", tag)[0]))
        features = np.vstack([[number, 0.0], FEATURES + 10.0**6])
        enter(own, rows=ClientRows(features[:1], LABELS[:1]))
        with pytest.raises(ConsentRefusedError, match="rows or the roster changed"):
            enter(own, rows=ClientRows(features, np.append(0, LABELS)))


def test_rows_are_known_by_the_same_bytes_in_every_release(tmp_path: Path) -> None:
    """Under other bytes a site's rows would count as new after an update. Here the stored format, by hand."""
    sum_ = masked()
    with journal(tmp_path) as own:
        own.note(sum_, ClientRows(FEATURES[:2], np.array([0, 1]), np.array([1, 2])))
        for_helpers = own.rows_of(sum_)
    folder = SessionStore(tmp_path / "state")
    with folder.locked():
        ((key,),) = folder.run("SELECT * FROM journal_key")
        ((subject, tags),) = folder.run("SELECT * FROM fingerprints")

    def mac(*parts: bytes) -> bytes:
        return by_hand(key, *parts)

    rows = [struct.pack("<2d", *row) for row in FEATURES[:2]]
    whole = [
        mac(b"row", rows[0], struct.pack("<d", 0.0)),
        mac(b"row", rows[1], struct.pack("<d", 1.0), (2).to_bytes(8, "big")),
    ]
    assert len(key) == 32
    assert tags == b"".join(mac(b"features", row)[:8] for row in rows)
    assert subject == mac(b"rows", *sorted(whole))
    assert for_helpers == mac(b"for helpers", subject)[:16]


def test_other_weights_are_other_rows(tmp_path: Path) -> None:
    """What changes from one total to the next is then these rows' copies alone; a row of weight 0 is in none."""
    ones, heavy = np.ones(6), np.array([1, 1, 1, 1, 1, 2])
    with journal(tmp_path) as own:
        enter(own)
        with pytest.raises(ConsentRefusedError, match="these leave 1"):
            enter(own, without(1), rows=ClientRows(FEATURES, LABELS, ones))  # the same rows
        enter(own, rows=ClientRows(FEATURES, LABELS, ones))
        with pytest.raises(ConsentRefusedError, match="rows or the roster changed"):
            enter(own, rows=ClientRows(FEATURES, LABELS, heavy))
        other = np.concatenate([FEATURES, FEATURES + 50]), np.concatenate([LABELS, LABELS])
        enter(own, rows=ClientRows(*other, np.repeat([0, 1], 6)))


def compute(
    own: QueryLog, session: bytes, computed: bytes, grown: int = 1, rows: ClientRows = ROWS, **rest: bool
) -> None:
    """One sum of a run, from the vector to the agreement."""
    place = RunPlace(session=session, configuration=b"c", computed=computed, grown=grown, **rest)
    own.note(protocol := masked(), rows, place)
    own.check(protocol)
    with own.computing(protocol, place):
        pass
    own.consent(protocol, EVERYBODY)


def test_another_computation_of_the_same_rows_is_a_further_total(tmp_path: Path) -> None:
    """The same clients and rows: nothing differs but what is computed, and two such answers say more than one."""
    with journal(tmp_path) as own:
        compute(own, b"one", b"a")
        compute(own, b"two", b"a")
        with pytest.raises(ConsentRefusedError, match="computes something else"):
            compute(own, b"three", b"b")
        with pytest.raises(ConsentRefusedError, match="raise further_totals"):  # of one row that was there before
            compute(own, b"three", b"b", rows=ClientRows(np.vstack([FEATURES[:1], FEATURES + 50]), np.zeros(7, int)))
        compute(own, b"four", b"b", has_noise=True)  # a ledger's question
        compute(own, b"five", b"a")
        compute(own, b"six", b"b", rows=ClientRows(FEATURES + 100, LABELS))
    with journal(tmp_path, further_totals=1) as own:
        compute(own, b"seven", b"b")
        compute(own, b"eight", b"b")
        with pytest.raises(ConsentRefusedError, match="1 of 1 are used"):
            compute(own, b"nine", b"d")
        assert own.count()[1] == 1


def test_an_allowance_is_for_what_is_computed_and_its_first_total(tmp_path: Path) -> None:
    """Another learner over one client less takes one, not one for each; the rest of its run goes with it."""
    with journal(tmp_path, further_totals=1) as own:
        compute(own, b"one", b"a")
        place = RunPlace(session=b"two", configuration=b"c", computed=b"b", grown=1)
        own.note(protocol := masked(), ROWS, place)
        with own.computing(protocol, place):
            pass
        own.consent(protocol, without(3))
        assert own.count() == (2, 1)
        with pytest.raises(ConsentRefusedError, match="1 of 1 are used"):
            own.consent(protocol, without(4))


def test_a_vector_that_left_counts_whether_or_not_its_client_is_asked(tmp_path: Path) -> None:
    """A quorum of others can sign a total with it, so another computation would be the rows' second."""
    place = RunPlace(session=b"one", configuration=b"c", computed=b"a", grown=1)
    with journal(tmp_path) as own:
        own.note(protocol := masked(), ROWS, place)
        with own.computing(protocol, place):
            pass
        with pytest.raises(ConsentRefusedError, match="computes something else"):
            compute(own, b"two", b"b")


def test_a_run_has_one_way_to_go_on(tmp_path: Path) -> None:
    """A later sum belongs to its run. Begun again, a run repeats what was computed and does nothing else."""
    with journal(tmp_path) as own:
        compute(own, b"one", b"a")
        compute(own, b"one", b"b", 2)
        with pytest.raises(ConsentRefusedError, match="computes something else"):
            compute(own, b"one", b"crafted", 2)
        compute(own, b"two", b"a")
        with pytest.raises(ConsentRefusedError, match="computes something else"):
            compute(own, b"two", b"crafted", 2)
        compute(own, b"two", b"b", 2)
        compute(own, b"two", b"c", 3)
        with pytest.raises(ConsentRefusedError, match="computes something else"):
            compute(own, b"one", b"crafted", 3)
