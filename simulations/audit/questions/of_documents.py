"""What is read from files and from rows, with every entry, line and number of it changed by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analytic.array_file import ArrayFile
from analytic.digits import exact_product
from analytic.learner import ClientRows, fit_in_the_clear
from analytic.model_files import FILE as MODELS
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.solve import solve_ridge
from federation.federation import Federation, Step
from federation.site.key_files import write_secret
from federation.site.roster import Roster
from federation.site.site_file import SiteFile
from federation.site.table import TableSchema
from federation.totals import FILE as TOTALS
from federation.totals import totals_from_bytes, totals_to_bytes
from secagg import SumResult
from simulations.audit.questions import Question
from simulations.audit.questions.changed import changed, changed_lines
from simulations.audit.questions.of_forms import LABELLED, REAL_TARGETS, clients_of
from simulations.audit.questions.of_sums import KEYS
from simulations.audit.questions.said import answer

SAVED = ("afl, intercept", "chosen", "agreed", "balanced", "lda")
SITE = """\
roster = "roster.toml"
state = "state"
forget_hours = 2.0

[policy]
modes = ["masked", "plain"]
min_clients = 3
min_survivors = 3
min_corruption = 0.1
accept_confirmed_guesses = true
receipts = "clients"

[journal]
further_totals = 2

[client]
party = 1
identity = "identity.key"
data = "rows.npz"
learners = ["afl"]

[privacy]
epsilon = 3.0
delta = 1e-5
ledger = "ledger"
"""
TABLE = """\
missing_values = ["", "NA"]

[columns.age]
scale = 7
missing = 50.0

[columns.sex]
categories = ["f", "m"]
missing = "flag"

[columns.outcome]
role = "target"
categories = ["no", "yes"]
"""
ROWS = "outcome,sex,age\nyes,f,32\nno,m,41\nno,NA,\n"


def about_documents() -> Iterator[Question]:
    """Return all of them."""
    for name in SAVED:
        yield from _of_model(name)
    for name, learner in {**LABELLED, **REAL_TARGETS}.items():
        yield from _of_rows(name, learner, real=name in REAL_TARGETS)
    yield from _totals()
    yield from _solves()
    yield from _sites()


def _of_model(name: str) -> Iterator[Question]:
    """A model's file, of which each array and each entry of the description is changed."""
    learner = LABELLED[name]
    model = fit_in_the_clear(learner, clients_of(real=False))
    arrays, said = MODELS.from_bytes(model_to_bytes(learner, model, classes=("a", "b", "c")), "the model")

    def read(arrays: Any, said: Any) -> object:
        saved = model_from_bytes(_file_of(MODELS, arrays, said))
        return saved.learner.weights_bytes(saved.model), saved.learner.context_bytes(saved.model), saved.classes

    yield from changed(f"file of {name}", read, arrays=dict(sorted(arrays.items())), said=dict(said))


def _file_of(kind: ArrayFile, arrays: Any, said: Any) -> bytes:
    own = {name: array if array.dtype.kind in "iuf" else np.zeros(1) for name, array in arrays.items()}
    return kind.to_bytes({name: np.ascontiguousarray(array) for name, array in own.items()}, said)


def _of_rows(name: str, learner: Any, *, real: bool) -> Iterator[Question]:
    """What a client's rows become, and what a server makes of a total and scores."""
    first, *_ = clients = clients_of(real=real)
    step = Step.of(learner, learner.init())
    assert step is not None

    def vector(features: Any, targets: Any, weights: Any) -> object:
        return step.vector(ClientRows(features, targets, weights))

    def taken(total: Any, survivors: Any = (1, 2, 3)) -> object:
        federation: Federation[Any] = Federation(learner, release=None)
        federation.take(SumResult(total=total, survivors=survivors))
        return federation.model if federation.next_sum is None else federation.next_sum.context

    model = fit_in_the_clear(learner, clients)
    weights = np.ones(len(first), dtype=np.int64)
    yield from changed(f"rows of {name}", vector, features=first.features, targets=first.targets, weights=weights)
    total = np.sum([step.vector(rows) for rows in clients], axis=0)
    survivors = {"survivors": (1, 2, 3)} if name == "afl, gamma" else {}
    yield from changed(f"total of {name}", lambda **own: answer(lambda: taken(**own)), total=total, **survivors)
    if hasattr(learner, "exact_scores"):
        yield from changed(
            f"scores of {name}", lambda features: learner.exact_scores(model, features), features=first.features
        )


def _totals() -> Iterator[Question]:
    sums = [SumResult(total=np.arange(size), survivors=(1, 2, size)) for size in (4, 5)]
    content = totals_to_bytes(sums)
    arrays, said = TOTALS.from_bytes(content, "the totals")
    yield from changed(
        "file of totals",
        lambda arrays, said: totals_from_bytes(_file_of(TOTALS, arrays, said)),
        arrays=dict(sorted(arrays.items())),
        said=dict(said),
    )


def _solves() -> Iterator[Question]:
    rng = np.random.default_rng(5)
    rows, goals = rng.integers(-9, 10, (20, 4)), rng.integers(0, 2, (20, 3))
    yield from changed(
        "solve", lambda **own: solve_ridge(**own).weights, gram=rows.T @ rows, cross=rows.T @ goals, ridge=0.5
    )
    yield from changed("product", exact_product, rows=rows * 0.1, matrix=rng.normal(size=(4, 2)).round(4))


def _sites() -> Iterator[Question]:
    clients = {party: KEYS[party].public for party in (1, 2, 3)}
    roster = Roster(
        server=KEYS[0].public, clients=clients, beside={"helpers": {7: KEYS[7].public}}, beacon=bytes(32)
    ).to_toml()

    def in_a_folder(name: str, then: Callable[[Path], object]) -> Callable[[str], object]:
        def ask(text: str) -> object:
            with TemporaryDirectory() as folder:
                place = Path(folder)
                (place / "roster.toml").write_text(roster, encoding="utf-8")
                write_secret(place / "identity.key", KEYS[1].secret)
                (place / name).write_text(text, encoding="utf-8")
                return then(place / name)

        return ask

    def site(path: Path) -> object:
        own = SiteFile.read(path)
        return own.policy, own.budget, own.forget_hours, own.journal, own.client is None, own.helpers

    def rows(text: str) -> Callable[[Path], object]:
        def read(path: Path) -> object:
            (path.with_name("rows.csv")).write_text(text, encoding="utf-8")
            schema = TableSchema.read(path)
            found = schema.rows(path.with_name("rows.csv"))
            return schema.fingerprint, found.features, found.targets

        return read

    yield from changed_lines("site's file", in_a_folder("site.toml", site), SITE)
    yield from changed_lines("roster's file", in_a_folder("roster.toml", lambda path: Roster.read(path)), roster)
    yield from changed_lines("table's file", in_a_folder("columns.toml", rows(ROWS)), TABLE)
    yield from changed_lines("table's rows", lambda text: in_a_folder("columns.toml", rows(text))(TABLE), ROWS)
