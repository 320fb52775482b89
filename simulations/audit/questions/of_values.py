"""What every value that parties agree on says of itself, as it is and with each of its parts changed.

Most refusals of the library are a value's own, and most of what its parties compute is a property of one.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, partial
from importlib import resources
from typing import Any, cast

import numpy as np

from analytic.bucketing import Bucketing, Encoding, FixedThresholds, Grouping, HistogramSpec, QuantileThresholds
from analytic.counts import CountSpec
from analytic.evaluation import TallySpec
from analytic.noisy_solve import NoisySolver
from analytic.random_map import RandomMap
from analytic.row_bounds import RowBounds
from analytic.row_format import ColumnMap, RowFormat
from analytic.row_map import CountMap, JointClip, LayerMap, RowClip, RowMap
from analytic.row_mean import MeanSpec
from analytic.sensitivity import ClientSensitivity, RecordSensitivity
from analytic.statistics import LABELS, Statistics, StatisticsSpec
from federation.audit_plan import AuditPlan, BoundPlan, Hypothesis
from federation.learners import LearnerSettings
from federation.modes import MODES
from federation.privacy import PrivacyPlan
from federation.release import ReleasePolicy
from federation.server.run_settings import RunSettings
from federation.site.roster import Roster
from federation.site.table import Column, TableSchema
from federation.site.terms import Terms
from federation.sum_setup import SumSetup
from secagg import Layout, SumResult
from secagg.committee.replication import Replication
from secagg.dp import Budget, CoordinateNoise, DistributedNoise, Release
from secagg.layout import Segment
from secagg.masked.assumptions import Assumptions
from secagg.masked.series import MaskedSeries
from secagg.policy import ClientPolicy, NoiseDemand
from simulations.audit.questions import Question
from simulations.audit.questions.changed import changed, parts
from simulations.audit.questions.of_forms import LABELLED, REAL_TARGETS, C, D
from simulations.audit.questions.of_sums import BOXES, KEYS, LAYOUT, ROSTER, SESSION, SHARES, SIGNERS, SUMS
from simulations.audit.questions.said import answer

CLIENTS = (1, 2, 3, 4, 5)
SPOKEN = ("to_bytes", "to_payload", "to_toml", "init", "explain", "canonical")
"""What is asked beside properties, where a value has it."""
DRAWN = ("lift", "seed", "d_phi", "d_f", "n_columns")
"""Parts whose changes draw large maps."""


def about_values() -> Iterator[Question]:
    """Return all of them."""
    for name, value in {**_values(), **_of_learners(), **_of_federations()}.items():
        own = {part: one for part, one in parts(value).items() if part not in DRAWN}
        kept = {part: one for part, one in parts(value).items() if part in DRAWN}
        yield from changed(f"value, {name}", partial(_made, type(value), kept), **own)
    template = tomllib.loads((resources.files("federation.flower") / "template" / "pyproject.toml").read_text())
    config = template["tool"]["flwr"]["app"]["config"]
    settings: dict[str, Any] = {name.replace("-", "_"): one for name, one in config.items()}
    yield from changed("settings of a run", _run_settings, **settings)
    yield from changed("settings of a private run", _run_settings, **{**settings, "epsilon": 2.0})


def _run_settings(**own: Any) -> list[str]:
    return _says(RunSettings.of({name.replace("_", "-"): one for name, one in own.items()}))


def _made(kind: type, kept: dict[str, Any], /, **own: Any) -> list[str]:
    return _says(kind(**kept, **own))


def _says(value: Any) -> list[str]:
    """What a value's public properties, and its methods that need nothing, answer."""
    said, kind = list[str](), cast(Any, type(value))
    for name, is_method in _spoken(kind):
        found = partial(getattr, value, name)
        said.append(f"{name} {answer(found() if is_method else found)}")
    return said


@cache
def _spoken(kind: type) -> list[tuple[str, bool]]:
    """The names, and whether each is a method."""
    found = [(name, inspect.getattr_static(kind, name)) for name in sorted(dir(kind))]
    return [
        (name, name in SPOKEN)
        for name, own in found
        if (name in SPOKEN and callable(getattr(kind, name)))
        or (isinstance(own, property) and not name.startswith(("_", "model_")))
    ]


def _values() -> dict[str, Any]:
    """Of sums and of noise."""
    noise = CoordinateNoise(levels=np.array([0, 1, 1, 0], dtype=np.uint8), variances=(400, 900))
    return {
        **SUMS,
        "series": MaskedSeries(clients=CLIENTS, series_id=SESSION, **SIGNERS),
        "segment": Segment(name="counts", size=3, bound=10, client_bound=4),
        "layout": Layout.of([("counts", 3, 10), ("more", 4, 2**40, 2**30)]),
        "replication": Replication(helpers=(6, 7, 8, 9), corrupt=1),
        "assumptions": Assumptions(corruption=0.1, dropout=0.2),
        "lying": Assumptions(corruption=0.1, dropout=0.2, malicious_server=True, security_bits=60.0),
        "demand": NoiseDemand(epsilon=1.0),
        "policy": ClientPolicy(
            min_clients=4, min_survivors=4, identities=ROSTER, server_identity=SIGNERS["server_identity"]
        ),
        "policy of a committee": ClientPolicy(
            modes=frozenset({"committee"}), helpers={party: box.public for party, box in BOXES.items()}, min_helpers=2
        ),
        "budget": Budget(epsilon=2.0, delta=1e-5, unit="record", adjacency="add-remove", population="questions"),
        "release": Release.of("a sum", Fraction(1, 100), SHARES, unit="record", adjacency="add-remove"),
        "noise of coordinates": noise,
        "distributed noise": DistributedNoise(total=noise, promised_survivors=5, colluders=1),
        "result": SumResult(total=np.arange(3), survivors=CLIENTS),
    }


def _of_learners() -> dict[str, Any]:
    """Of formats, shapes, maps and learners."""
    form = RowFormat.parse("Q5.11")
    clip = RowClip(bound=2.0, row_format=form)
    return {
        **LABELLED,
        **REAL_TARGETS,
        "format": form,
        "unsigned format": RowFormat(integer_bits=1, fraction_bits=7, signed=False),
        "columns": ColumnMap(exponents=(3, 4, 5), target_exponents=(1,), intercept=1),
        "statistics' shape": StatisticsSpec(
            n_features=4, n_targets=C, feature_format=form, target_format=form, max_rows=900, target_sums=True
        ),
        "labels' shape": StatisticsSpec(
            n_features=4, n_targets=C, feature_format=form, target_format=LABELS, max_rows=900
        ),
        "counts' shape": CountSpec(n_groups=3, n_values=4, n_classes=2, max_rows=90),
        "tally's shape": TallySpec(shapes={"a": (3,), "b": (2, 2)}, bounds={"a": 1, "b": 3}, max_rows=70),
        "mean's shape": MeanSpec(n_features=4, limit=3, row_format=form, max_rows=80),
        "histograms' shape": HistogramSpec(
            n_features=3, grid=QuantileThresholds(low=-4.0, high=4.0, n_bins=16), max_rows=50
        ),
        "quantiles": QuantileThresholds(low=-4.0, high=4.0, n_bins=16),
        "thresholds": FixedThresholds(values=((0.0, 1.0, 2.5), (-1.0, 0.5, 0.75))),
        "buckets": Bucketing(encoding=Encoding.ONE_HOT, n_buckets=4),
        "groups": Grouping(n_digits=8, group_size=2, base=3, seed=5),
        "random map": RandomMap(n_features=3, n_columns=4, feature_bound=8.0, fraction_bits=9, seed=4),
        "statistics": Statistics(gram=np.diag([4, 9]), cross=np.ones((2, C), dtype=np.int64), count=12),
        "bounds of rows": RowBounds(features=np.array([3.0, 1.5]), hidden=(4.0, 2.0), residuals=1.0),
        "clip": clip,
        "clip to a norm": RowClip(bound=2.0, row_format=form, normalise=True),
        "joint clip": JointClip(limit=500, cross_weight=3),
        "map of rows": RowMap(clip=clip),
        "map of counts": CountMap(fraction_bits=6),
        "map of layers": LayerMap(fraction_bits=8, residual_bound=2.0),
        "noisy solver": NoisySolver(sigma=3.0, shares=2),
        "sensitivity of a record": RecordSensitivity(
            squared_features=4, squared_targets=1, adjacency="add-remove", nonnegative=False
        ),
        "sensitivity of a client": ClientSensitivity(
            clip=JointClip(limit=500, cross_weight=3), adjacency="replace-one"
        ),
    }


def _of_federations() -> dict[str, Any]:
    """Of what sites and a server agree on."""
    clients = {party: KEYS[party].public for party in CLIENTS}
    return {
        "plan of privacy": PrivacyPlan(epsilon=2.0, promised_survivors=4, colluders=1),
        "plan for clients": PrivacyPlan(epsilon=2.0, unit="client", client_rows=50, promised_survivors=4),
        "policy of releases": ReleasePolicy(),
        "terms": Terms(mode="masked", session=bytes(range(16)), clients=CLIENTS, corruption=0.2, min_survivors=4),
        "roster": Roster(
            server=KEYS[0].public,
            clients=clients,
            beside={"helpers": {party: KEYS[party].public for party in (6, 7, 8)}},
            corrupt_helpers=1,
        ),
        "set-up": SumSetup(
            layout=LAYOUT, clients=CLIENTS, session_id=SESSION, client_keys=clients, server_key=KEYS[0].public
        ),
        "learner's settings": LearnerSettings(
            n_features=D, n_classes=C, feature_format=RowFormat.parse("Q5.11"), max_rows=100, max_clients=9
        ),
        "column": Column(scale=7, missing=50.0),
        "column of categories": Column(categories=("f", "m"), missing="flag"),
        "table": TableSchema(
            missing_values=frozenset({"", "NA"}),
            columns={"age": Column(scale=7), "ill": Column(role="target", categories=("no", "yes"))},
        ),
        "hypothesis": Hypothesis(attack="lone_rows", mode="masked", expected="hidden"),
        "audit plan": AuditPlan(alpha=0.01, hypotheses=(Hypothesis(attack="a", mode="masked", expected="hidden"),)),
        "bound plan": BoundPlan(content=b"{}", nonce=bytes(32)),
        **{f"mode {name}": mode for name, mode in MODES.items() if mode.extra is None},
    }
