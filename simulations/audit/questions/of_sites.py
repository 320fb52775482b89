"""Questions about what stands around a sum: gates, journals, rosters, sites' files and sessions, totals, dossiers."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analytic.afl import AFL
from analytic.deepafl import DeepAFL
from analytic.learner import ClientRows, fit_in_the_clear
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.qda import QDA
from analytic.row_format import ColumnMap, RowFormat
from analytic.statistics import Statistics
from federation import receipts
from federation.audit_plan import AuditPlan, BoundPlan, Hypothesis, read_plan, signed_plan
from federation.changes import Change, changed, with_classes
from federation.datasets import Dataset
from federation.dossier import Sources, problems
from federation.federation import Federation, Step
from federation.in_process import run_federation
from federation.modes import MODES
from federation.privacy import PrivacyPlan
from federation.release import Gate, ReleasePolicy, gram_rank, predicted_membership_auc
from federation.site.invitation import Invitation
from federation.site.journal import Journal, RunPlace
from federation.site.key_files import read_secret, write_secret
from federation.site.results import Results, RunResults
from federation.site.roster import Roster
from federation.site.site import Site
from federation.site.site_file import SiteFile
from federation.site.state import FILE, SessionFolder
from federation.site.table import TableSchema
from federation.site.terms import Terms
from federation.totals import differences, totals_from_bytes, totals_to_bytes
from federation.trial import KEY_HOLDER_PARTY, Trial
from secagg import (
    CommitteeSum,
    IdentityKey,
    InOneProcess,
    Layout,
    MaskedSum,
    PartySecrets,
    Receipt,
    ReceiptedSum,
    SignedBy,
    SumProtocol,
    SumResult,
    run_in_memory,
)
from secagg.committee.messages import SET_LABEL, SetCertificate, set_hash
from secagg.config import SERVER
from secagg.dp import Budget, Ledger
from secagg.policy import ClientPolicy
from secagg.wire import MessageType, seal_frame
from simulations.audit.questions import Question
from simulations.audit.questions.changed import changed as asked_changed
from simulations.audit.questions.of_sums import BOXES, KEYS
from simulations.audit.questions.said import answer

TEN = tuple(range(1, 11))
LAYOUT = Layout.of([("sum", 2, 100)])
ROWS = ClientRows(np.arange(12.0).reshape(6, 2) - 3.0, np.array([0, 1, 2, 0, 1, 2]))
LEARNER = AFL(
    n_features=2, n_targets=3, feature_format=RowFormat(integer_bits=4, fraction_bits=12), max_rows=2000, max_clients=20
)
HOUR = 3600.0


def about_sites() -> Iterator[Question]:
    """Return all of them."""
    yield from _gates()
    yield from _journals()
    yield from _rosters()
    yield from _results()
    yield from _changes()
    yield from _plans()
    yield from _terms()
    yield from _sites()
    yield from _tables()
    yield from _runs()
    yield from _dossiers()


def _gates() -> Iterator[Question]:
    policy = ReleasePolicy()

    def statistics(rank: int, count: int = 10**6, clients: int | None = None) -> Statistics:
        gram = np.diag([100] * rank + [0] * (4 - rank)).astype(np.int64)
        gram[3, 3] = 100
        gram[2, 3] = gram[3, 2] = 100 if rank < 4 else 0
        gram[2, 2] = 100
        return Statistics(gram=gram, cross=np.zeros((4, 2), np.int64), count=count, n_clients=clients)

    rows = np.random.default_rng(6).integers(-(2**15), 2**15, (20, 40))
    few = Statistics(gram=rows.T @ rows, cross=np.zeros((40, 1), np.int64), count=20)
    wide = Statistics(gram=np.diag(range(1, 41)), cross=np.zeros((40, 1), np.int64), count=0)
    asked: dict[str, Callable[[], object]] = {
        "many clients": lambda: policy.before_release(None, range(5)),
        "few clients": lambda: policy.before_release(None, range(4)),
        "a client twice": lambda: policy.before_release(None, [1, 2, 3, 4, 4]),
        "close to an earlier one": lambda: policy.before_release(None, range(10), earlier=[range(6)]),
        "one more than an earlier one": lambda: policy.before_release(None, range(10), earlier=[range(9)]),
        "the same as an earlier one": lambda: policy.before_release(None, range(10), earlier=[range(10)]),
        "far from earlier ones": lambda: policy.before_release(None, range(10), earlier=[range(5), range(20, 30)]),
        "close to the second": lambda: policy.before_release(None, range(10), earlier=[range(20, 30), range(9)]),
        "full rank": lambda: policy.before_release(statistics(4), range(5)),
        "low rank": lambda: policy.before_release(statistics(3), range(5)),
        "low rank in a part": lambda: policy.before_release((statistics(4), statistics(3)), range(5)),
        "few clients in a part": lambda: policy.before_release((statistics(4, clients=4), statistics(4)), range(5)),
        "few rows": lambda: [one.gate.value for one in policy.before_release(statistics(4, count=9), range(5))],
        "small counts": lambda: [one.gate.value for one in policy.before_release(np.array([0, 3, 9]), range(5))],
        "no small counts": lambda: policy.before_release(np.array([0, 5, 9]), range(5)),
        "allowed": lambda: replace(policy, allow=frozenset({Gate.RANK})).before_release(statistics(3), range(5)),
        "allowed, and few": lambda: replace(policy, allow=frozenset({Gate.RANK})).before_release(
            statistics(3), range(4)
        ),
        "rank": lambda: [gram_rank(statistics(rank)) for rank in (3, 4)],
        "rank of fewer rows than features": lambda: gram_rank(few),
        "fewer rows than features": lambda: policy.before_release(few, range(5)),
        "fewer rows than features, in one of two parts": lambda: policy.before_release((statistics(4), few), range(5)),
        "hardly more rows than features": lambda: policy.before_release(replace(wide, count=45), range(5)),
        "more rows than features": lambda: policy.before_release(replace(wide, count=4000), range(5)),
        "guessed membership": lambda: [predicted_membership_auc(n, d) for n, d in ((500, 256), (3, 4), (10**6, 64))],
        "a policy of one": lambda: ReleasePolicy(min_survivors=1),
        "a policy of every guess": lambda: ReleasePolicy(highest_auc=0.5),
        "a policy": lambda: policy,
    }
    yield from ((f"gate, {name}", ask) for name, ask in asked.items())

    def federated(survivors: int) -> object:
        rng = np.random.default_rng(1)
        federation = Federation(LEARNER, release=policy)
        step = federation.next_sum
        assert step is not None
        rows = [ClientRows(np.round(rng.normal(size=(9, 2)), 2), np.arange(9) % 3) for _ in range(survivors)]
        total = np.sum([step.vector(own) for own in rows], axis=0)
        federation.take(SumResult(total=total, survivors=tuple(range(1, survivors + 1))))
        return federation.next_sum is None

    yield "gate, a federation of five", lambda: federated(5)
    yield "gate, a federation of four", lambda: federated(4)


def _masked(number: int, keys: int = 0) -> MaskedSum:
    identities = tuple(IdentityKey(bytes([party + 20 + keys * (party == 10)]) * 32).public for party in TEN)
    return MaskedSum(
        layout=LAYOUT, clients=TEN, session_id=bytes([number]) * 16, threshold=8, identities=identities,
        server_identity=KEYS[SERVER].public,
    )  # fmt: skip


def _helped(number: int) -> CommitteeSum:
    return CommitteeSum(
        layout=LAYOUT,
        clients=TEN,
        session_id=bytes([number]) * 16,
        helper_keys=((101, BOXES[6].public),),
        min_survivors=5,
    )


def _journals() -> Iterator[Question]:
    """What may enter a total after other totals, by itself and in runs, as an owner and as a helper."""
    everybody = frozenset(TEN)

    def entered(*totals: Any, further: int = 0, corruption: float = 0.2) -> object:
        """Survivors (None for such as are not shown) of one total after the other, each with what is special of it."""
        with TemporaryDirectory() as folder:
            for number, (survivors, *more) in enumerate(totals):
                options = more[0] if more else {}
                state = SessionFolder(Path(folder) / "state")
                with state.locked():
                    own = Journal(state, policy=ClientPolicy(min_corruption=corruption), further_totals=further)
                    given = _helped(number) if survivors is None else _masked(number, options.get("keys", 0))
                    protocol: SumProtocol = options.get("protocol", given)
                    if "rows" in options or not options.get("helps"):
                        own.note(protocol, options.get("rows", ROWS), options.get("place"))
                    shown = None if survivors is None else tuple(sorted(survivors))
                    if options.get("helps"):
                        own.consent_to_help(protocol, shown, options.get("known"))
                    elif options.get("is_checked"):
                        own.check(protocol)
                    else:
                        own.consent(protocol, shown)
                    found = own.count()
        return found

    def place(number: int, session: int, previous: int | None = None, configuration: bytes = b"deep") -> RunPlace:
        before = b"" if previous is None else bytes([previous]) * 16
        return RunPlace(session=bytes([session]) * 16, previous=before, configuration=configuration, grown=100 + number)

    features, labels = ROWS.features, ROWS.targets
    less = ClientRows(features[:-1], labels[:-1])
    other = ClientRows(features + 100.0, labels)
    shared = ClientRows(np.vstack([features[:3], features[:3] + 50.0]), labels)
    turned = ClientRows(features[::-1].astype(np.float32), labels[::-1])
    old, new = ({party: bytes([which, party]) * 8 for party in TEN} for which in (1, 2))
    asked: dict[str, Callable[[], object]] = {
        "one total": lambda: entered((everybody,)),
        "the same twice": lambda: entered((everybody,), (everybody,)),
        "one client less": lambda: entered((everybody,), (everybody - {1},)),
        "three less": lambda: entered((everybody,), (everybody - {1, 2, 3},)),
        "three less, few collude": lambda: entered((everybody,), (everybody - {1, 2, 3},), corruption=0.1),
        "four less": lambda: entered((everybody,), (everybody - {1, 2, 3, 4},)),
        "three that leave one": lambda: entered(({1, 2, 3, 4, 5},), ({1, 6, 7, 8, 9},), (everybody - {10},)),
        "the rows in another order": lambda: entered((everybody,), (everybody, {"rows": turned})),
        "a row less": lambda: entered((everybody,), (everybody, {"rows": less})),
        "a row more": lambda: entered((everybody, {"rows": less}), (everybody,)),
        "half of the rows": lambda: entered((everybody,), (everybody, {"rows": shared})),
        "a row of the first total, in the third": lambda: entered(
            (everybody,), (everybody, {"rows": other}), (everybody, {"rows": shared})
        ),
        "another label": lambda: entered((everybody,), (everybody, {"rows": ClientRows(features, labels[::-1])})),
        "weights": lambda: entered((everybody,), (everybody, {"rows": ClientRows(features, labels, np.full(6, 2))})),
        "other rows": lambda: entered((everybody,), (everybody - {1}, {"rows": other})),
        "another roster": lambda: entered((everybody,), (everybody, {"keys": 99})),
        "survivors that are not shown": lambda: entered((everybody,), (None,)),
        "after survivors that were not shown": lambda: entered((None,), (everybody,)),
        "the first rows after many others": lambda: entered(
            *[(everybody, {"rows": ClientRows(features + 100.0 * n, labels)}) for n in range(40)], (everybody - {1},)
        ),
        "an allowance": lambda: entered((everybody,), (everybody - {1},), (everybody - {2},), further=2),
        "an allowance that is used up": lambda: entered(
            (everybody,), (everybody - {1},), (everybody - {2},), further=1
        ),
        "a run": lambda: entered(*[(None, {"place": place(n, n, n - 1 if n else None)}) for n in range(3)]),
        "a run of another configuration": lambda: entered(
            (None, {"place": place(0, 0)}), (None, {"place": place(1, 1, 0, b"other")})
        ),
        "a run that goes back": lambda: entered((None, {"place": place(1, 0)}), (None, {"place": place(0, 1, 0)})),
        "a run of other rows": lambda: entered(
            (None, {"place": place(0, 0)}), (None, {"place": place(1, 1, 0), "rows": less})
        ),
        "a run that nobody named": lambda: entered((None, {"place": place(0, 0)}), (None, {"place": place(1, 1)})),
        "a run that loses one": lambda: entered(
            (everybody, {"place": place(0, 0)}), (everybody - {3}, {"place": place(1, 0)})
        ),
        "checked, the same rows": lambda: entered((everybody,), (everybody, {"is_checked": True})),
        "checked, a row less": lambda: entered((everybody,), (everybody, {"is_checked": True, "rows": less})),
        "checked, other rows": lambda: entered((everybody,), (everybody, {"is_checked": True, "rows": other})),
        "checked, another roster": lambda: entered((everybody,), (everybody, {"is_checked": True, "keys": 99})),
        "checked, a row less that is allowed": lambda: entered(
            (everybody,), (everybody, {"is_checked": True, "rows": less}), further=1
        ),
        "checked, after survivors that were not shown": lambda: entered((None,), (everybody, {"is_checked": True})),
        "help with two": lambda: entered((everybody, {"helps": True}), (everybody, {"helps": True})),
        "help with one less": lambda: entered(
            (everybody, {"helps": True, "known": old}), (everybody - {1}, {"helps": True, "known": old})
        ),
        "help in another roster": lambda: entered(
            (everybody, {"helps": True, "known": old}), (everybody - {10}, {"helps": True, "known": old, "keys": 99})
        ),
        "help where one has other rows": lambda: entered(
            (everybody, {"helps": True, "known": old}), (everybody, {"helps": True, "known": old | {3: new[3]}})
        ),
        "help with new rows": lambda: entered(
            (everybody, {"helps": True, "known": old}), (everybody - {1}, {"helps": True, "known": new})
        ),
    }
    yield from ((f"journal, {name}", ask) for name, ask in asked.items())

    def in_a_journal(then: Callable[[Journal], object]) -> object:
        with TemporaryDirectory() as folder:
            state = SessionFolder(Path(folder) / "state")
            with state.locked():
                return then(Journal(state, policy=ClientPolicy()))

    def failed(party: int, mine: bool) -> Callable[[Journal], object]:
        protocol = replace(
            _helped(3),
            helper_keys=tuple((101 + p, box.public) for p, box in enumerate(BOXES.values())),
            corrupt_helpers=1,
        )

        def then(own: Journal) -> object:
            digest = protocol.digest if mine else bytes(32)
            signed = {101 + p: KEYS[1].sign(SET_LABEL, set_hash(digest, {})) for p in range(party)}
            own.note(protocol, ROWS)
            own.consent(protocol, None)
            own.free(protocol, SetCertificate(survivors=(), signatures=signed).to_payload())
            return own.count()

        return then

    yield "journal, help without survivors", lambda: in_a_journal(lambda own: own.consent_to_help(_helped(0), ()))
    yield "journal, rows that nobody noted", lambda: in_a_journal(lambda own: own.consent(_masked(0), TEN))
    yield "journal, a failure that nobody signed", lambda: in_a_journal(failed(3, True))
    yield "journal, a failure of a masked sum", lambda: in_a_journal(lambda own: own.free(_masked(0), b""))

    def shown(own: Journal) -> object:
        own.note(_masked(0), ROWS)
        own.note(_masked(1), less)
        own.consent(_masked(0), TEN)
        told = [own.rows_of(_masked(number)) for number in (0, 1)]
        (noted,) = own.totals()
        return len(told[0]), told[0] != told[1], noted.survivors, noted.n_vectors, noted.is_help, noted.is_allowed

    yield "journal, shown", lambda: in_a_journal(shown)
    yield (
        "journal, two sites name rows otherwise",
        lambda: len(
            {in_a_journal(lambda own: (own.note(_masked(0), ROWS), own.rows_of(_masked(0)))[1]) for _ in range(2)}
        ),
    )


def _rosters() -> Iterator[Question]:
    roster = Roster(
        server=KEYS[SERVER].public,
        clients={party: KEYS[party].public for party in (1, 2, 3)},
        beside={"helpers": {party: KEYS[party].public for party in (6, 7)}},
    )
    changes: dict[str, dict[str, Any]] = {
        "": {}, "another server": {"server": KEYS[9].public}, "a beacon": {"beacon": bytes(32)},
        "totals": {"totals": (1,)}, "corrupt helpers": {"corrupt_helpers": 1}, "rows": {"max_client_rows": 9},
        "swapped clients": {"clients": {**roster.clients, 1: KEYS[2].public, 2: KEYS[1].public}},
        "a helper less": {"beside": {"helpers": {6: KEYS[6].public}}},
        "a key holder": {"beside": {**roster.beside, "key_holder": {8: KEYS[8].public}}},
        "helpers that are clients": {"beside": {"helpers": {1: KEYS[6].public}}}, "no clients": {"clients": {}},
        "totals of a stranger": {"totals": (9,)}, "a client 0": {"clients": {0: bytes(32)}},
        "two key holders": {"beside": {"key_holder": {8: KEYS[8].public, 9: KEYS[9].public}}},
        "a table of others": {"beside": {"others": {8: KEYS[8].public}}}, "no rows": {"max_client_rows": 0},
        "more corrupt than none": {"corrupt_helpers": -1},
    }  # fmt: skip
    fields = {name: getattr(roster, name) for name in type(roster).model_fields}
    for name, change in changes.items():
        yield (
            f"roster, {name}",
            lambda change=change: (lambda r: (r.fingerprint, r.total_holders, r.to_toml()))(
                Roster(**{**fields, **change})
            ),
        )


def _results() -> Iterator[Question]:
    own = RunResults.signed(KEYS[SERVER], bytes(16), model=b"model", totals=b"totals")
    public = KEYS[SERVER].public
    yield "results", lambda: own.check(public, bytes(16))
    for name, ask in {
        "another run's": lambda: own.check(public, bytes([1]) * 16),
        "another server's": lambda: own.check(KEYS[1].public, bytes(16)),
        "another model": lambda: replace(own, model=b"other").check(public, bytes(16)),
        "other totals": lambda: replace(own, totals=b"other").check(public, bytes(16)),
        "no totals": lambda: replace(own, totals=b"").check(public, bytes(16)),
    }.items():
        yield f"results, {name}", ask
    learner, model, totals = _learned()
    content, written = model_to_bytes(learner, model), totals_to_bytes(totals)
    yield "totals", lambda: (written, totals_from_bytes(written)[0].total, totals_from_bytes(written)[0].survivors)
    yield "totals, cut", lambda: totals_from_bytes(written[:-1])
    yield "totals of another kind", lambda: totals_from_bytes(content)
    other = [replace(totals[0], total=totals[0].total + np.eye(1, len(totals[0].total), 3, dtype=np.int64)[0])]
    for name, results in {"these": totals, "others": other, "none": [], "twice": totals * 2}.items():
        yield (
            f"model from totals, {name}",
            lambda r=results: len(differences(model_from_bytes(content), r)),
        )

    def kept(then: bytes) -> object:
        with TemporaryDirectory() as folder:
            Results(Path(folder) / "kept").keep(replace(own, model=then, totals=written))
            return sorted(path.name for path in (Path(folder) / "kept").iterdir())

    yield "results kept", lambda: kept(content)
    yield "results that are no model", lambda: kept(b"model")

    def secret(then: Callable[[Path], object]) -> Callable[[], object]:
        def asked() -> object:
            with TemporaryDirectory() as folder:
                write_secret(Path(folder) / "key", bytes(range(32)))
                return then(Path(folder) / "key")

        return asked

    yield "key file", secret(lambda path: (read_secret(path), oct(path.stat().st_mode & 0o777)))
    yield "key file, written again", secret(lambda path: write_secret(path, bytes(32)))
    yield "key file, for others to read", secret(lambda path: (path.chmod(0o644), read_secret(path)))
    yield "key file, cut", secret(lambda path: (path.write_text("00"), read_secret(path)))
    yield "receipts against a roster", lambda: list(_told(totals))
    yield "receipts of two totals", lambda: list(_told(totals, 1))


def _learned(clients: tuple[int, ...] = TEN, seed: int = 2, learner: AFL = LEARNER) -> tuple[AFL, Any, list[SumResult]]:
    rng, federation, totals = np.random.default_rng(seed), Federation(learner, release=None), list[SumResult]()
    rows = [ClientRows(np.round(rng.normal(size=(9, 2)), 2), np.arange(9) % 3) for _ in clients]
    while (step := federation.next_sum) is not None:
        total = np.sum([step.vector(own) for own in rows], axis=0)
        totals.append(SumResult(total=total, survivors=clients))
        federation.take(totals[-1])
    return learner, federation.model, totals


def _told(totals: list[SumResult], shift: int = 0) -> Iterator[str]:
    """What a roster says of receipts of one or of two totals."""
    roster = Roster(server=KEYS[SERVER].public, clients={party: KEYS[party].public for party in TEN})
    inner = MaskedSum(
        layout=LAYOUT, clients=TEN, session_id=bytes(16), threshold=8,
        identities=tuple(KEYS[party].public for party in TEN), server_identity=KEYS[SERVER].public,
    )  # fmt: skip
    protocol = ReceiptedSum(protocol=inner, signed_by=SignedBy.SERVER)
    elsewhere = replace(protocol, protocol=replace(inner, session_id=bytes([1]) * 16))
    secrets = {party: PartySecrets(identity=KEYS[party]) for party in (SERVER, *TEN)}
    found = list[SumResult]()
    for place, own in enumerate((protocol, protocol, elsewhere)):
        vectors = {party: np.array([party, shift * place]) for party in TEN}
        found.append(run_in_memory(InOneProcess(protocol=own, secrets=secrets), vectors).result)
    wrong = [replace(found[0], total=found[0].total + 1), replace(found[0], survivors=TEN[1:])]
    kept = [Receipt.from_bytes(found[1].receipt)]
    for results in (found[:2], [found[0], found[2], found[1]], wrong[:1], wrong[1:]):
        yield str([len(list(receipts.problems(own, results, roster))) for own in ((), kept, kept * 2)])
    other = roster.model_copy(update={"server": KEYS[9].public})
    yield str([len(list(receipts.problems(own, results, other))) for own, results in ((kept, ()), ((), found[:1]))])


def _changes() -> Iterator[Question]:
    learner, _, (before,) = _learned()
    _, _, (batch,) = _learned((11, 12, 13, 14, 15), 3)
    _, _, (some,) = _learned((1, 2, 3, 4, 5), 2)
    _, _, (few,) = _learned((11, 12), 3)
    asked: dict[str, tuple[Any, ...]] = {
        "joins": (batch, Change.JOIN), "few join": (few, Change.JOIN), "those inside join": (some, Change.JOIN),
        "leave": (some, Change.LEAVE), "strangers leave": (batch, Change.LEAVE), "all leave": (before, Change.LEAVE),
        "remove rows": (some, Change.REMOVE_ROWS),
    }  # fmt: skip
    for name, (other, change) in asked.items():
        yield (
            f"change, {name}",
            lambda o=other, c=change: (lambda f: (f.total.total, f.total.survivors, f.revealed))(
                changed(learner, before, o, c)
            ),
        )
    _, _, (most,) = _learned(tuple(range(1, 8)), 2)
    yield "change, few stay", lambda: changed(learner, before, most, Change.LEAVE).revealed
    yield "change, few stay for a reason", lambda: changed(learner, before, most, Change.LEAVE, reason="over").revealed
    ri = replace(learner, ri_gamma=1.0)
    (_, _, (whole,)), (_, _, (part,)) = _learned(learner=ri), _learned((1, 2, 3, 4, 5), 2, ri)
    for change in (Change.REMOVE_ROWS, Change.LEAVE):
        yield (
            f"change under an RI process, {change.value}",
            lambda c=change: ri.weights_bytes(changed(ri, whole, part, c).model),
        )
    yield "change, few with a reason", lambda: changed(learner, before, few, Change.JOIN, reason="asked for").revealed
    short = replace(batch, total=batch.total[:-1])
    yield "change of another layout", lambda: changed(learner, before, short, Change.JOIN).revealed
    yield (
        "change and back",
        lambda: bool(
            (
                changed(learner, changed(learner, before, batch, Change.JOIN).total, batch, Change.LEAVE).total.total
                == before.total
            ).all()
        ),
    )
    for name, alone in {"a class of one site": 1, "a class that one keeps": 6, "a class of everybody": 10}.items():
        for change in (Change.JOIN, Change.LEAVE, Change.REMOVE_ROWS):
            yield (
                f"change of parts, {name}, {change.value}",
                lambda n=alone, c=change: _changed_parts(n, c).revealed,
            )
            yield (
                f"change of parts, {name}, {change.value} for a reason",
                lambda n=alone, c=change: _changed_parts(n, c, reason="over").revealed,
            )
    yield "more classes", lambda: (lambda pair: (pair[0].n_targets, pair[1].total))(with_classes(learner, before, 5))
    yield "fewer classes", lambda: with_classes(learner, before, 2)[1].total


def _changed_parts(alone: int, change: Change, **more: Any) -> Any:
    """A change of a QDA's total of ten by a batch of five, in which so many sites hold rows of the last class."""
    own = {field.name: getattr(LEARNER, field.name) for field in fields(AFL)}
    learner = QDA(**{**own, "columns": ColumnMap(exponents=(0, 0), intercept=0)}, shrinkage=0.5)
    drawn = np.random.default_rng(3)

    def total(sites: tuple[int, ...]) -> SumResult:
        step = Federation(learner, release=None).next_sum
        assert step is not None
        vectors = []
        for site in sites:
            labels = np.arange(60) % (3 if site % 10 < alone else 2)
            vectors.append(step.vector(ClientRows(np.round(drawn.normal(size=(60, 2)), 2), labels)))
        return SumResult(total=np.sum(vectors, axis=0), survivors=sites)

    before, batch = total(tuple(range(10))), total((*range(10, 15),) if change is Change.JOIN else (*range(5),))
    return changed(learner, before, batch, change, **more)


def _plans() -> Iterator[Question]:
    when = datetime(2025, 1, 2, 3, tzinfo=UTC)
    plan = AuditPlan(alpha=0.01, hypotheses=(Hypothesis(attack="a", mode="masked", expected="hidden"),))
    text = signed_plan(plan, KEYS[1], when)
    yield "audit plan", lambda: text
    yield "audit plan read", lambda: read_plan(text, signers=[KEYS[1].public])[0] == plan
    yield "audit plan of somebody else", lambda: read_plan(text, signers=[KEYS[2].public])
    yield "audit plan, changed", lambda: read_plan(text.replace('"hidden"', '"leaks"'), signers=[KEYS[1].public])
    yield "audit plan, written otherwise", lambda: read_plan(text.replace("{", "{ ", 1))
    yield "audit plan, a name twice", lambda: read_plan(text.replace("{", '{"signed_at": "2024-01-02", ', 1))
    yield "audit plan, another time", lambda: read_plan(text.replace("2025-01-02", "2024-01-02"))
    for verdict in ("recovered", "leaks", "no evidence of leakage at this power", "not tried", ""):
        report = {"settings": {"alpha": 0.01}, "cells": [{"attack": "a", "mode": "masked", "verdict": verdict}]}
        yield f"decided by {verdict!r}", lambda r=report: plan.decide(r)["decision"]
    silent = {"settings": {"alpha": 0.01}, "cells": [{"attack": "b", "mode": "masked", "verdict": "leaks"}]}
    yield "decided by no word of it", lambda: plan.decide(silent)["decision"]
    yield "decided by other settings", lambda: plan.decide({"settings": {"alpha": 0.5}, "cells": []})["decision"]
    cells = [{"attack": name, "mode": "masked", "verdict": "leaks"} for name in ("b", "a")]
    cells[1]["verdict"] = "no evidence of leakage at this power"
    report = {"settings": {"alpha": 0.01, "modes": "masked"}, "cells": cells}
    stated = plan.model_copy(update={"settings": {"modes": "masked"}})
    yield from asked_changed("decided", lambda audit: stated.decide(audit), audit=report)
    bound = BoundPlan(content=text.encode(), nonce=bytes(32))
    yield "bound plan", lambda: (bound.session, replace(bound, nonce=b"1" * 32).session, bound.public)


def _terms() -> Iterator[Question]:
    terms = Terms(mode="masked", session=bytes(16), clients=TEN)
    private = PrivacyPlan(epsilon=2.0, promised_survivors=4)
    changes: dict[str, dict[str, Any]] = {
        "": {}, "mode": {"mode": "plain"}, "session": {"session": bytes([1]) * 16}, "clients": {"clients": TEN[1:]},
        "helpers": {"helpers": (101,)}, "corruption": {"corruption": 0.1}, "dropout": {"dropout": 0.1},
        "survivors": {"min_survivors": 5}, "previous": {"previous": bytes(16)}, "place": {"place": 2},
        "privacy": {"privacy": private}, "receipts": {"receipts": "clients"},
    }  # fmt: skip
    for name, change in changes.items():
        own = replace(terms, **change)
        yield f"terms, {name}", lambda own=own: (own.to_bytes(), Terms.from_bytes(own.to_bytes()) == own)
    for old, new in ((b"masked", b"plain"), (b"}", b" }"), (b":2", b":-2"), (b"0.0", b"2.0"), (b"0.0", b"NaN")):
        changed_bytes = terms.to_bytes().replace(old, new, 1)
        yield f"terms with {new!r}", lambda c=changed_bytes: Terms.from_bytes(c)
    yield "terms of the next sum", lambda: terms.next_of_series.to_bytes()
    roster = Roster(server=KEYS[SERVER].public, clients={party: KEYS[party % 12].public for party in (1, 2, 3, 4, 5)})
    five = replace(terms, clients=(1, 2, 3, 4, 5))
    invited = Invitation.make(five, LEARNER, LEARNER.init())
    yield "invitation", lambda: (invited.to_bytes(), Invitation.from_bytes(invited.to_bytes()) == invited)
    yield "invitation cut", lambda: Invitation.from_bytes(invited.to_bytes()[:-1])
    for name, change in changes.items():
        own = replace(five, **{**change, "clients": five.clients})
        yield (
            f"sum of an invitation, {name}",
            lambda own=own: Invitation.make(own, LEARNER, LEARNER.init()).agree(roster).protocol.digest,
        )
    yield (
        "sum of an invitation to fewer",
        lambda: (
            Invitation.make(replace(five, clients=(1, 2, 3, 4)), LEARNER, LEARNER.init()).agree(roster).protocol.digest
        ),
    )
    wider = replace(LEARNER, ridge=1.0)
    yield (
        "sum of an invitation to another model",
        lambda: Invitation.make(five, wider, wider.init()).agree(roster).protocol.digest,
    )
    yield "context of a step", lambda: Step.of(LEARNER, LEARNER.init()).context
    session = KEYS[1].sign("results of a run", b"")
    yield "signature for one purpose", lambda: hashlib.sha256(session).hexdigest()[:16]


def _sites() -> Iterator[Question]:
    """A whole site: what it declines, what it stores and what it forgets."""
    data = Dataset(
        name="questions",
        x_train=np.round(np.random.default_rng(0).normal(size=(40, 2)), 2),
        y_train=np.arange(40) % 3,
        x_test=np.zeros((10, 2)),
        y_test=np.arange(10) % 3,
    )
    clients = (1, 2, 3, 4, 5)

    def invited(**terms: Any) -> Invitation:
        values: dict[str, Any] = {"mode": "masked", "session": bytes([7]) * 16, "clients": clients, "dropout": 0.4}
        return Invitation.make(Terms(**(values | terms)), LEARNER, LEARNER.init())

    def at_a_trial(then: Callable[[Trial], object]) -> Callable[[], object]:
        def asked() -> object:
            with TemporaryDirectory() as folder:
                return then(Trial.create(Path(folder) / "trial", data, n_sites=5, n_helpers=2))

        return asked

    def site(trial: Trial, party: int = 1, **options: Any) -> Site:
        return Site(SiteFile.read(trial.site(party) / "site.toml"), **options)

    def announced(trial: Trial, proposed: Invitation) -> Invitation:
        said = {party: text for own in clients for party, text in site(trial, own).announce(proposed).items()}
        return proposed.with_announced(said)

    def joined(**terms: Any) -> Callable[[Trial], object]:
        return lambda trial: sorted(site(trial).join(announced(trial, invited(**terms))))

    committee: dict[str, Any] = {"mode": "committee", "helpers": (101, 102), "min_survivors": 3}
    declined: dict[str, dict[str, Any]] = {
        "": {}, "committee": committee, "plain": {"mode": "plain"}, "few clients": {"clients": (1, 2, 3, 4)},
        "strangers": {"clients": (1, 2, 3, 4, 6)}, "few helpers": {**committee, "helpers": (101,)},
        "few survivors": {**committee, "min_survivors": 2},
        "noise": {"privacy": PrivacyPlan(epsilon=1.0, promised_survivors=3)},
    }  # fmt: skip
    for name, terms in declined.items():
        yield f"site, {name}", at_a_trial(joined(**terms))

    def edited(old: str, new: str, **terms: Any) -> Callable[[Trial], object]:
        def then(trial: Trial) -> object:
            path = trial.site(1) / "site.toml"
            path.write_text(path.read_text().replace(old, new))
            return joined(**terms)(trial)

        return then

    for old, new in (
        ("min_clients = 5", "min_clients = 6"), ("min_corruption = 0.0", "min_corruption = 0.2"),
        ("min_survivors = 3", "min_survivors = 4"), ('learners = ["afl"]', 'learners = ["deepafl"]'),
        ("[policy]", '[policy]\nreceipts = "server"'), ("[policy]", "[policy]\nmin_survivor = 3"),
        ("party = 1", "party = 2"),
    ):  # fmt: skip
        yield f"site with {new!r}", at_a_trial(edited(old, new))

    def wiped(trial: Trial) -> object:
        """Nothing that was stored of a session is in any file once it has ended."""
        own, proposed = site(trial), invited()
        own.join(proposed)
        state = trial.site(1) / "state"
        content = (state / FILE).read_bytes()
        folder = SessionFolder(state)
        with folder.locked():
            record = folder.store(proposed.session, 1).load() or b""
        pieces = [record[at : at + 32] for at in range(0, len(record) - 32, 100)]
        was = sum(piece in content for piece in pieces) > len(pieces) // 2
        site(trial).end(proposed.session)
        left = sum(piece in path.read_bytes() for path in state.iterdir() for piece in pieces)
        return len(pieces) > 3, was, left

    def again(trial: Trial) -> object:
        first = site(trial).join(invited())
        return site(trial).join(invited()) == first

    def ended(trial: Trial) -> object:
        site(trial).join(invited())
        site(trial).end(invited().session)
        return sorted(site(trial).join(invited()))

    def another(trial: Trial) -> object:
        site(trial).join(invited())
        return sorted(site(trial).join(invited(dropout=0.2)))

    def lost(trial: Trial) -> object:
        site(trial).join(invited())
        for path in (trial.site(1) / "state").iterdir():
            path.unlink()
        return site(trial).answer(invited().session, {1: b"anything"})

    def aged(hours: int) -> Callable[[Trial], object]:
        def then(trial: Trial) -> object:
            site(trial, now=lambda: 1e9).join(invited())
            site(trial, now=lambda: 1e9 + hours * HOUR).sweep()
            return sorted(site(trial).join(invited()))

        return then

    def for_others(trial: Trial) -> object:
        site(trial).join(invited())
        return site(trial).answer(invited().session, {2: b"message"})

    def unlocked(where: str) -> Callable[[Trial], object]:
        def then(trial: Trial) -> object:
            (trial.site(1) / "state").mkdir(mode=0o700, exist_ok=True)
            (trial.site(1) / where).chmod(0o755)
            return joined()(trial)

        return then

    def aborted(trial: Trial) -> object:
        site(trial).join(invited())
        file = SiteFile.read(trial.site(1) / "site.toml")
        protocol = invited().agree(file.roster).protocol
        own = IdentityKey(read_secret(trial.folder / "server" / "identity.key"))
        kind = MessageType.UNMASK_REQUEST
        wrong = seal_frame(kind, bytes(4), digest=protocol.digest, sender=SERVER, recipient=1, identity=own)
        found = []
        for _ in range(2):
            try:
                found.append(str(site(trial).answer(invited().session, {1: wrong})))
            except Exception as error:  # by its name
                found.append(type(error).__name__)
        return found

    def many_rows(most: int) -> Callable[[Trial], object]:
        def then(trial: Trial) -> object:
            path = trial.site(1) / "roster.toml"
            path.write_text(Roster.read(path).model_copy(update={"max_client_rows": most}).to_toml())
            proposed = announced(trial, invited(**committee))
            return sorted(site(trial).join(proposed))

        return then

    def sealed(is_over: bool, previous: bytes = b"") -> Callable[[Trial], object]:
        """What a site says to a sum whose boxes are sealed to its helpers' last keys, or to those before."""

        def then(trial: Trial) -> object:
            path = trial.site(3) / "site.toml"
            path.write_text(path.read_text() + "[journal]\nfurther_totals = 9\n")
            old = announced(trial, invited(**committee))
            said = [sorted(site(trial, 3).join(old))]
            for party in (1, 2):
                site(trial, party).begin_epoch()
            new = announced(trial, invited(**committee, session=bytes([8]) * 16))
            said.append(sorted(site(trial, 3).join(new)))
            said += [answer(partial(site(trial, 1).join, one)) for one in (old, replace(new, announced=old.announced))]
            third = invited(**committee, session=bytes([9]) * 16, previous=previous)
            again = third.with_announced(old.announced) if is_over else announced(trial, third)
            return said, sorted(site(trial, 3).join(again))

        return then

    def swept(days: int) -> Callable[[Trial], object]:
        """What is left of a helper's epoch so many days after it began, and of a session under its key."""

        def then(trial: Trial) -> object:
            def then_site(party: int) -> Site:
                return site(trial, party, now=lambda: 1e9)

            said = {own: text for own in clients for own, text in then_site(own).announce(invited(**committee)).items()}
            proposed = invited(**committee).with_announced(said)
            then_site(1).join(proposed)
            later = site(trial, now=lambda: 1e9 + 86400 * days)
            later.sweep()
            folder = SessionFolder(trial.site(1) / "state")
            with folder.locked():
                left = len(folder.lasting("epochs of 101").load() or b"")
            return left, answer(lambda: sorted(then_site(1).join(proposed)))

        return then

    def epochs(trial: Trial) -> object:
        first = site(trial).begin_epoch()
        second = site(trial).begin_epoch()
        differ = all(first[name].key != second[name].key for name in first)
        proposed = announced(trial, invited(**committee))
        said = site(trial).join(proposed)
        refused = answer(partial(site(trial).begin_epoch, number=1))
        return (
            refused,
            site(trial).join(proposed) == said,
            differ,
            [(one.epoch, two.epoch) for one, two in zip(first.values(), second.values(), strict=True)],
        )

    def key_holder(trial: Trial) -> object:
        one, other = (
            invited(mode="bfv", helpers=(KEY_HOLDER_PARTY,), min_survivors=3, session=bytes([n]) * 16) for n in (7, 8)
        )
        first = site(trial, 5).announce(one)
        again = invited(mode="bfv", helpers=(KEY_HOLDER_PARTY,), min_survivors=4, session=bytes([7]) * 16)
        said = answer(partial(site(trial, 5).announce, again))
        return site(trial, 5).announce(one) == first, site(trial, 5).announce(other) != first, said

    def forgotten(mode: str, **terms: Any) -> Callable[[Trial], object]:
        """Whatever a client that helps too stored of a session is in no file once it has ended."""

        def then(trial: Trial) -> object:
            party = 5 if mode == "bfv" else 1
            proposed = announced(trial, invited(mode=mode, min_survivors=3, **terms))
            site(trial, party).join(proposed)
            state = trial.site(party) / "state"
            with closing(sqlite3.connect(state / FILE)) as opened:
                kept = opened.execute("SELECT content FROM records WHERE session = ?", (proposed.session,)).fetchall()
            pieces = [content[at : at + 32] for (content,) in kept for at in range(0, len(content) - 32, 100)]
            site(trial, party).end(proposed.session)
            left = sum(piece in path.read_bytes() for path in state.iterdir() for piece in pieces)
            return len(kept), len(pieces) > 3, left

        return then

    def twice(further: int) -> Callable[[Trial], object]:
        """The same rows in a second total whose survivors nobody shows."""

        def then(trial: Trial) -> object:
            path = trial.site(1) / "site.toml"
            path.write_text(path.read_text() + f"[journal]\nfurther_totals = {further}\n")
            said = []
            for number in (7, 8):
                proposed = announced(trial, invited(**committee, session=bytes([number]) * 16))
                said.append(sorted(site(trial).join(proposed)))
                site(trial).end(proposed.session)
            return said, site(trial).count_totals()

        return then

    def in_series(trial: Trial) -> object:
        """A sum of a series stands in its sites' journals as one by itself does."""
        proposed, identity = invited(place=1), IdentityKey(read_secret(trial.folder / "server" / "identity.key"))
        mode, setup = proposed.setup(Roster.read(trial.site(1) / "roster.toml"))
        server = mode.series(setup).server(secrets=PartySecrets(identity=identity))
        session = server.begin_sum(setup.layout, setup.context)
        said = {party: site(trial, party).join(proposed)[party] for party in clients}
        while session.result is None:
            for party, message in said.items():
                session.receive(party, message)
            requests = session.close_round()
            said = {
                party: site(trial, party).answer(setup.session_id, {party: request})[party]
                for party, request in requests.items()
            }
        return session.result.survivors, [site(trial, party).count_totals() for party in clients]

    def paid(epsilon: float, of_run: float = 8.0, further: int = 9) -> Callable[[Trial], object]:
        """A noisy sum is in a site's ledger before its vector leaves; beyond its budget it is declined."""

        def then(trial: Trial) -> object:
            path, found = trial.site(1) / "site.toml", []
            demand = (
                f'[privacy]\nepsilon = {epsilon}\nrun_epsilon = 8.0\nledger = "ledger"\n[journal]\n'
                f"further_totals = {further}\n"
            )
            path.write_text(path.read_text() + demand)
            budget = SiteFile.read(path).budget
            assert budget is not None
            Ledger.create(trial.site(1) / "ledger", budget)
            plan = PrivacyPlan(epsilon=of_run, promised_survivors=3, colluders=1)
            private = plan.apply(LEARNER).learner
            for number in (7, 8):
                values = {**committee, "session": bytes([number]) * 16, "clients": clients, "privacy": plan}
                proposed = announced(trial, Invitation.make(Terms(**values), private, private.init()))
                try:
                    found.append(str(sorted(site(trial).join(proposed))))
                except Exception as error:  # by its name
                    found.append(type(error).__name__)
                found.append(str(len(Ledger.open(trial.site(1) / "ledger").releases)))
            return found

        return then

    def of_another_budget(trial: Trial) -> object:
        path = trial.site(1) / "site.toml"
        path.write_text(path.read_text() + '[privacy]\nepsilon = 8.0\nrun_epsilon = 8.0\nledger = "ledger"\n')
        file = SiteFile.read(path)
        assert file.budget is not None
        Ledger.create(trial.site(1) / "ledger", replace(file.budget, epsilon=9.0))
        return file.ledger

    yield "site, a ledger of another budget", at_a_trial(of_another_budget)
    for mode, helpers in (("committee", (101, 102)), ("bfv", (KEY_HOLDER_PARTY,))):
        if MODES[mode].installed:
            yield f"site, wiped of {mode}", at_a_trial(forgotten(mode, helpers=helpers))
    yield "site, its rows in a second total", at_a_trial(twice(0))
    yield "site, its rows in a second total that is allowed", at_a_trial(twice(9))
    yield "site, in a series", at_a_trial(in_series)
    yield "site, paid", at_a_trial(paid(20.0))
    yield "site, paid for what its journal allows", at_a_trial(paid(20.0, further=0))
    yield "site, paid beyond its budget", at_a_trial(paid(8.1))
    yield "site, less noise than it demands", at_a_trial(paid(20.0, 9.0))
    yield "site, wiped", at_a_trial(wiped)
    yield "site, asked again", at_a_trial(again)
    yield "site, a session that ended", at_a_trial(ended)
    yield "site, another invitation", at_a_trial(another)
    yield "site, its state lost", at_a_trial(lost)
    yield "site, a session of yesterday", at_a_trial(aged(23))
    yield "site, an old session", at_a_trial(aged(25))
    yield "site, asked for another party", at_a_trial(for_others)
    yield "site, a key for others to read", at_a_trial(unlocked("identity.key"))
    yield "site, a folder for others to read", at_a_trial(unlocked("state"))
    yield "site, an aborted session", at_a_trial(aborted)
    yield "site, too many rows of a client", at_a_trial(many_rows(7))
    yield "site, as many rows as a client may have", at_a_trial(many_rows(8))
    for days in (0, 29, 31, 400):
        yield f"site, {days} days after an epoch began", at_a_trial(swept(days))
    yield "site, epochs", at_a_trial(epochs)
    for previous in (b"", bytes([8]) * 16):
        for is_over in (False, True):
            which, after = "an older" if is_over else "the last", previous.hex()[:2] or "nothing"
            yield f"site, boxes for {which} epoch, after {after}", at_a_trial(sealed(is_over, previous))
    if MODES["bfv"].installed:
        yield "site, key holder", at_a_trial(key_holder)


def _tables() -> Iterator[Question]:
    columns: dict[str, Any] = {
        "age": {"scale": 7, "missing": 50.0},
        "sex": {"categories": ("f", "m"), "missing": "flag"},
        "outcome": {"role": "target", "categories": ("no", "yes")},
    }
    schema = TableSchema(missing_values=frozenset({"", "NA"}), columns=columns)
    yield "table", lambda: (schema.features, schema.classes, schema.n_targets, schema.fingerprint)

    def rows(text: str) -> Callable[[], object]:
        def asked() -> object:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "rows.csv"
                path.write_text(text, encoding="utf-8")
                found = schema.rows(path)
                return found.features, found.targets

        return asked

    head = "name,outcome,sex,age\n"
    for name, text in {
        "rows": head + "A,yes,f,32\nB,no,NA,\n", "an unknown category": head + "A,yes,x,32\n",
        "an unknown class": head + "A,maybe,f,32\n", "a class that is missing": head + "A,NA,f,32\n",
        "no number": head + "A,yes,f,old\n", "infinity": head + "A,yes,f,inf\n",
        "a column less": "outcome,age\nyes,3\n",
        "a column twice": "age,age,sex,outcome\n1,2,f,no\n", "a short line": head + "A,yes,f\n", "nothing": "",
    }.items():  # fmt: skip
        yield f"table of {name}", rows(text)
    for name, change in {
        "another scale": {"age": {"scale": 8, "missing": 50.0}}, "another order": {"sex": {"categories": ("m", "f")}},
        "no target": {"outcome": {"categories": ("no", "yes")}},
        "a category twice": {"sex": {"categories": ("f", "f")}},
    }.items():  # fmt: skip
        yield (
            f"schema of {name}",
            lambda c=change: TableSchema(columns={**columns, **c}).fingerprint,
        )


def _runs() -> Iterator[Question]:
    """Whole runs in one process: totals, models, bills; alone and in series, with clients that vanish."""
    rng = np.random.default_rng(5)
    rows = {party: ClientRows(np.round(rng.uniform(-2, 2, (9, 2)), 2), np.arange(9) % 3) for party in range(1, 7)}
    deep = DeepAFL(n_features=2, n_targets=3, feature_bound=4.0, max_rows=64, n_layers=1, d_phi=4, d_f=4, ridge=1.0)

    def run(learner: Any, mode: str, **options: Any) -> Callable[[], object]:
        def asked() -> object:
            found = run_federation(learner, rows, MODES[mode], **options)
            pooled = [rows[party] for party in found.survivors[0]]
            same = learner.weights_bytes(found.model) == learner.weights_bytes(fit_in_the_clear(learner, pooled))
            return found.survivors, same, [found.cost_of(party).messages_by_sum for party in (1, 2)], len(found.totals)

        return asked

    for mode in ("plain", "masked", "committee"):
        yield f"run over {mode}", run(LEARNER, mode)
        yield f"run of several sums over {mode}", run(deep, mode)
        yield f"run over {mode}, one vanishes", run(LEARNER, mode, dropouts=lambda number: {2: 0})
        yield (
            f"run over {mode}, many vanish",
            run(LEARNER, mode, dropouts=lambda number: dict.fromkeys((1, 2, 3, 4, 5), 0)),
        )
    yield "run in series", run(deep, "masked", in_series=True)
    yield "run of clients with too many rows", run(LEARNER, "plain", max_client_rows=8)

    def private(epsilon: float) -> Callable[[], object]:
        def asked() -> object:
            with TemporaryDirectory() as folder:
                budget = Budget(epsilon=4.0, delta=1e-5, unit="record", adjacency="add-remove", population="questions")
                ledger = Ledger.create(Path(folder) / "ledger", budget)
                plan = PrivacyPlan(epsilon=epsilon, promised_survivors=3, colluders=1)
                try:
                    totals = [
                        run_federation(LEARNER, rows, MODES["masked"], privacy=plan, ledger=ledger).totals[-1]
                        for _ in range(2)
                    ]
                except Exception as error:  # by its name
                    return type(error).__name__, len(ledger.releases)
                return len(ledger.releases), totals[0].total.tolist() != totals[1].total.tolist()

        return asked

    for epsilon in (1.0, 3.0, 5.0):
        yield f"private runs at {epsilon}", private(epsilon)


def _dossiers() -> Iterator[Question]:
    """A dossier of one run, then one with each of its files changed."""

    def written(folder: Path) -> Path:
        learner, model, totals = _learned()
        run = folder / "run"
        run.mkdir()
        roster = Roster(server=KEYS[SERVER].public, clients={party: KEYS[party].public for party in TEN})
        (folder / "roster.toml").write_text(roster.to_toml())
        (run / "model.safetensors").write_bytes(model_to_bytes(learner, model))
        (run / "totals.safetensors").write_bytes(totals_to_bytes(totals))
        weights = hashlib.sha256(learner.weights_bytes(model)).hexdigest()
        said = {
            "weights_sha256": weights, "roster": roster.fingerprint, "survivors": [list(TEN)], "started": "",
            "learner": "afl", "mode": "masked", "certified": True,
        }  # fmt: skip
        (run / "summary.json").write_text(json.dumps(said))
        return run

    def asked(
        spoil: Callable[[Path], object] = lambda path: None, key: IdentityKey = KEYS[SERVER], early: bool = False
    ) -> Callable[[], object]:
        def ask() -> object:
            with TemporaryDirectory() as name:
                folder = Path(name)
                run = written(folder)
                if early:
                    spoil(run)
                sources = Sources(runs=[run], roster=folder / "roster.toml", now=datetime(2025, 1, 2, tzinfo=UTC))
                sources.write(folder / "dossier", KEYS[SERVER])
                if not early:
                    spoil(folder / "dossier")
                return sorted({file for file, _ in problems(folder / "dossier", key.public)})

        return ask

    def flip(name: str) -> Callable[[Path], object]:
        def spoil(folder: Path) -> object:
            content = bytearray((folder / name).read_bytes())
            content[len(content) // 2] ^= 1
            return (folder / name).write_bytes(bytes(content))

        return spoil

    def other_total(run: Path) -> object:
        (one,) = totals_from_bytes((run / "totals.safetensors").read_bytes())
        total = one.total.copy()
        total[0] += 1
        return (run / "totals.safetensors").write_bytes(totals_to_bytes([replace(one, total=total)]))

    def other_survivors(run: Path) -> object:
        said = json.loads((run / "summary.json").read_text())
        return (run / "summary.json").write_text(json.dumps({**said, "survivors": [[1, 2]]}))

    yield "dossier", asked()
    yield "dossier under another key", asked(key=KEYS[1])
    for name in ("roster.toml", "dossier.json", "dossier.sig", "runs/run/model.safetensors", "runs/run/summary.json"):
        yield f"dossier, {name} changed", asked(flip(name))
    yield "dossier, a file missing", asked(lambda folder: (folder / "runs/run/totals.safetensors").unlink())
    yield "dossier, a file more", asked(lambda folder: (folder / "more").write_text("more"))
    yield "dossier of another total", asked(other_total, early=True)
    yield "dossier of other survivors", asked(other_survivors, early=True)
