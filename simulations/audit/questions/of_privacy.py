"""Questions about noise: laws, shares, prices, curves, ledgers, private forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds
from analytic.deepafl import DeepAFL
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows
from analytic.logistic import Logistic
from analytic.row_format import RowFormat
from analytic.safle import SAFLe
from analytic.sensitivity import NoiseScales, gradient_sensitivity, noise_levels
from federation.federation import Federation, Step
from federation.modes import MODES
from federation.privacy import PrivacyPlan, PrivateForm, reach_beyond
from secagg import InsecureSeededEntropy, Layout, SumProtocol, SumResult
from secagg.dp import Budget, CoordinateNoise, DistributedNoise, Ledger, PrivacyGuarantee, Release, guarantee
from secagg.dp.accountant import calibrate, rounding_log_ratio
from secagg.dp.audit import audit_noise
from secagg.dp.conversions import gdp_delta, gdp_epsilon, gdp_rho, zcdp_delta, zcdp_epsilon, zcdp_rho
from secagg.dp.discrete_gaussian import DiscreteGaussian, discrete_gaussian
from secagg.dp.noise import convolution_log_ratio
from simulations.audit.questions import Question
from simulations.audit.questions.of_sums import numbers_of
from simulations.audit.questions.said import answer

LEVELS = np.array([0, 1, 2, 1, 2], dtype=np.uint8)
NOISE = CoordinateNoise(levels=LEVELS, variances=(400, 90_000))
SHARES = DistributedNoise(total=NOISE, promised_survivors=5, colluders=2)
RELEASE = Release.of("a sum", Fraction(1, 100), SHARES, unit="record", adjacency="add-remove")
LINEAR: dict[str, Any] = {
    "n_features": 3, "n_targets": 2, "feature_format": RowFormat.parse("Q2.6"), "max_rows": 64, "max_clients": 6,
}  # fmt: skip
LEARNERS: dict[str, Any] = {
    "afl": AFL(**LINEAR),
    "fedhip": FedHiP(**LINEAR, ridge=1.0),
    "logistic": Logistic(learner=AFL(**LINEAR, ridge=1.0), n_rounds=1),
    "deepafl": DeepAFL(
        n_features=3, n_targets=2, feature_bound=4.0, max_rows=64, n_layers=1, d_phi=6, d_f=4, ridge=1.0
    ),
    "safle": SAFLe(
        n_features=3, n_classes=2, max_rows=64, thresholds=FixedThresholds.evenly(-4, 4, 4), n_buckets=4, group_size=1
    ),
}
PLAN = PrivacyPlan(epsilon=2.0, promised_survivors=4, colluders=1)
PLANS: dict[str, PrivacyPlan] = {
    "": PLAN,
    "another epsilon": replace(PLAN, epsilon=1.0),
    "another delta": replace(PLAN, delta=1e-7),
    "replaced": replace(PLAN, adjacency="replace-one"),
    "clients": replace(PLAN, unit="client", client_rows=8),
    "clients, replaced": replace(PLAN, unit="client", client_rows=8, adjacency="replace-one"),
    "no colluders": replace(PLAN, colluders=0),
    "more survivors": replace(PLAN, promised_survivors=6),
    "a server's": replace(PLAN, promised_survivors=None, colluders=0),
    "no mean": replace(PLAN, mean_share=0.0),
    "another share": replace(PLAN, gram_share=0.5),
    "of no sign": replace(PLAN, nonnegative=True),
    "coarse": replace(PLAN, fraction_bits=12),
}


def about_privacy() -> Iterator[Question]:
    """Return all of them."""
    yield from _laws()
    yield from _curves()
    yield from _bills()
    yield from _ledgers()
    yield from _forms()
    yield from _plans()


def _seeded() -> InsecureSeededEntropy:
    return InsecureSeededEntropy(4, "questions")


def _laws() -> Iterator[Question]:
    for variance in (1, 9, 400, Fraction(7, 2), 2**60):
        yield f"draws of {variance}", lambda v=variance: discrete_gaussian(v).draw(50, _seeded())
        yield f"radius of {variance}", lambda v=variance: discrete_gaussian(v).radius
    for bad in (0, -1, 2**113, 0.5):
        yield f"law of variance {bad}", lambda bad=bad: DiscreteGaussian(bad)
    yield "noise drawn", lambda: NOISE.draw(_seeded())
    yield "noise of two draws differs", lambda: NOISE.draw().tolist() != NOISE.draw().tolist()
    yield "noise", lambda: (NOISE.counts, NOISE.dimension, NOISE.digest, NOISE.tail_mass, NOISE.radius(slice(0, 3)))
    yield "shares of noise", lambda: (SHARES.share, SHARES.honest, SHARES.log_ratio, SHARES.tail_mass, SHARES.digest)
    yield "noise realised", lambda: [SHARES.realised(n) for n in (3, 5, 9)]
    for n in (1, 2, 3, 7):
        yield f"noise split in {n}", lambda n=n: NOISE.split(n).variances
        yield f"shares' law of {n}", lambda n=n: convolution_log_ratio(4.0, n)
    layout = Layout.of([("a", 2, 100), ("b", 3, 2**40, 50)])
    yield "room for noise", lambda: [NOISE.widened(layout, n) for n in (1, 5)]
    yield "room for noise of another size", lambda: NOISE.widened(Layout.of([("a", 2, 100)]), 1)
    yield "noise where nothing is released", lambda: NOISE.check_withheld(np.array([1, 0, 0, 0, 0]))
    yield "noise where something is", lambda: NOISE.check_withheld(np.array([0, 9, 9, 9, 9]))
    for name, bad in {
        "a level without variance": {"levels": np.full(5, 3, np.uint8)}, "no variance": {"variances": ()},
        "a variance of 0": {"variances": (0, 9)}, "levels of int64": {"levels": LEVELS.astype(np.int64)},
    }.items():  # fmt: skip
        yield f"noise of {name}", lambda bad=bad: replace(NOISE, **bad)
    for name, few in {
        "all collude": {"colluders": 5}, "a colluder less than none": {"colluders": -1},
        "shares too fine": {"total": replace(NOISE, variances=(2, 2))},
    }.items():  # fmt: skip
        yield f"shares where {name}", lambda few=few: replace(SHARES, **few)
    claimed = CoordinateNoise(levels=np.ones(4000, dtype=np.uint8), variances=(10_000,))
    drawn = claimed.draw(_seeded())
    for name, residual in {"as claimed": drawn, "halved": drawn // 2, "three times": drawn * 3}.items():
        yield (
            f"noise audited, {name}",
            lambda r=residual: (lambda a: (a.too_little, a.too_much, a.repeats))(audit_noise(r, claimed)),
        )


def _curves() -> Iterator[Question]:
    for mu in (0.1, 1.0, 3.0):
        yield f"Gaussian curve of {mu}", lambda m=mu: [gdp_delta(m, e) for e in (0.1, 1.0, 4.0)]
        yield f"Gaussian epsilon of {mu}", lambda m=mu: gdp_epsilon(m, 1e-5)
        yield f"zCDP of {mu}", lambda m=mu: [zcdp_delta(m, e) for e in (0.5, 1.0, 8.0)]
        yield f"zCDP epsilon of {mu}", lambda m=mu: zcdp_epsilon(m, 1e-6)
    for epsilon in (0.5, 2.0, 8.0):
        yield (
            f"rho of {epsilon}",
            lambda e=epsilon: (zcdp_rho(e, 1e-5), gdp_rho(e, 1e-5)),
        )
        yield (
            f"calibrated to {epsilon}",
            lambda e=epsilon: [float(calibrate(e, 1e-5, releases=n, by_zcdp=z)) for n in (1, 3) for z in (True, False)],
        )
    for epsilon, delta in ((0.0, 1e-5), (65.0, 1e-5), (1.0, 0.5), (1.0, 0.0), (math.nan, 1e-5)):
        yield f"promise of {epsilon} at {delta}", lambda e=epsilon, d=delta: calibrate(e, d)
    yield "calibrated to no release", lambda: calibrate(1.0, 1e-5, releases=0)
    yield "rounding", lambda: [rounding_log_ratio(v) for v in (1, 100, 10**6)]


def _bills() -> Iterator[Question]:
    yield "release", lambda: RELEASE
    yield "release by a server", lambda: Release.of("a", Fraction(1, 9), NOISE, unit="client", adjacency="replace-one")
    for n in (1, 2, 5):
        yield f"bill of {n}", lambda n=n: guarantee([RELEASE] * n, 1e-5)
    dear = replace(RELEASE, rho=Fraction(1, 2))
    yield "bill of two kinds", lambda: guarantee([RELEASE, dear], 1e-5)
    for name, bad in {
        "two units": [RELEASE, replace(RELEASE, unit="client")],
        "two adjacencies": [RELEASE, replace(RELEASE, adjacency="replace-one")],
        "coarse shares": [replace(RELEASE, log_ratio=1e-3)],
        "cut tails": [replace(RELEASE, tail_mass=1e-4)],
    }.items():
        yield f"bill of {name}", lambda bad=bad: guarantee(bad, 1e-5)
    yield "bill at no delta", lambda: guarantee([RELEASE], 0.0)
    yield "release of no cost", lambda: replace(RELEASE, rho=Fraction(0))
    yield "release of another unit", lambda: replace(RELEASE, unit="row")
    yield "release with slack below 0", lambda: replace(RELEASE, tail_mass=-1.0)


def _ledgers() -> Iterator[Question]:
    budget = Budget(
        epsilon=1.001 * guarantee([RELEASE] * 2, 1e-5).epsilon,
        delta=1e-5,
        unit="record",
        adjacency="add-remove",
        population="questions",
    )

    def kept(then: Callable[[Ledger, Path], object]) -> Callable[[], object]:
        def asked() -> object:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "ledger"
                own = Ledger.create(path, budget)
                own.charge(RELEASE, session_id=bytes(16))
                return then(own, path)

        return asked

    def changed(old: bytes, new: bytes) -> Callable[[Ledger, Path], object]:
        def then(own: Ledger, path: Path) -> object:
            own.charge(RELEASE, session_id=bytes(16))
            path.write_bytes(path.read_bytes().replace(old, new, 1))
            return Ledger.open(path).spent()

        return then

    def cut(own: Ledger, path: Path) -> object:
        own.charge(RELEASE, session_id=bytes(16))
        head, lines = own.head, path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]))
        return Ledger.open(path, expected_head=head).spent()

    def without_a_line(own: Ledger, path: Path) -> object:
        own.charge(replace(RELEASE, label="second"), session_id=bytes(16))
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0], *lines[2:]]))
        return Ledger.open(path).spent()

    def half_a_line(own: Ledger, path: Path) -> object:
        path.write_bytes(path.read_bytes()[:-3])
        return own.charge(RELEASE, session_id=bytes(16))

    def again(own: Ledger, path: Path) -> object:
        return Ledger.open(path).charge(RELEASE, session_id=bytes(16)), len(Ledger.open(path).releases)

    def thrice(own: Ledger, path: Path) -> object:
        own.charge(RELEASE, session_id=bytes(16))
        return Ledger.open(path).charge(RELEASE, session_id=bytes([1]) * 16)

    def many(own: Ledger, path: Path) -> object:
        """Each time it is opened anew, until nothing is left."""
        small, found = replace(RELEASE, rho=Fraction(1, 2000)), list[str]()
        for number in range(30):
            found.append(answer(lambda n=number: Ledger.open(path).charge(small, session_id=bytes([n]) * 16)))
        return found, Ledger.open(path).spent(), len(Ledger.open(path).releases)

    def refused(own: Ledger, path: Path) -> object:
        before = path.read_bytes()
        try:
            own.charge(replace(RELEASE, rho=Fraction(9)), session_id=bytes(16))
        except Exception as error:  # whatever it is called
            return type(error).__name__, path.read_bytes() == before
        return "charged"

    yield "ledger, spent", kept(lambda own, path: own.spent())
    yield "ledger, a session twice", kept(again)
    yield "ledger, beyond its budget", kept(thrice)
    yield "ledger, many releases", kept(many)
    yield "ledger, a refusal writes nothing", kept(refused)
    yield "ledger, asked for room", kept(lambda own, path: (own.check([RELEASE]), len(own.releases)))
    yield "ledger, asked for too much", kept(lambda own, path: own.check([RELEASE] * 2))
    for name, other in {"unit": {"unit": "client"}, "adjacency": {"adjacency": "replace-one"}}.items():
        yield (
            f"ledger, another {name}",
            kept(lambda own, path, other=other: own.charge(replace(RELEASE, **other), session_id=b"")),
        )
    yield "ledger, begun again", kept(lambda own, path: Ledger.create(path, budget))
    yield "ledger, mode", kept(lambda own, path: oct(path.stat().st_mode & 0o777))
    yield "ledger, a price changed", kept(changed(b'"rho": "1/100"', b'"rho": "1/900"'))
    yield "ledger, a budget changed", kept(changed(b'"delta": 1e-05', b'"delta": 1e-06'))
    yield "ledger, another format", kept(changed(b"ledger/2", b"ledger/9"))
    yield "ledger, a line left out", kept(without_a_line)
    yield "ledger, its end cut off", kept(cut)
    yield "ledger, half a line", kept(half_a_line)
    yield "ledger, none", kept(lambda own, path: Ledger.open(path.with_name("none")))
    yield "ledger, its head", kept(lambda own, path: Ledger.open(path, expected_head=own.head).head == own.head)
    for bad in ({"epsilon": 0.0}, {"delta": 0.7}, {"unit": "row"}, {"adjacency": "any"}):
        yield f"budget of {bad}", lambda bad=bad: replace(budget, **bad)


def _forms() -> Iterator[Question]:
    """Private forms: what noise is on what, at what price, and what their rows are made of."""
    for name, learner in LEARNERS.items():
        plans = PLANS if name == "afl" else {n: PLANS[n] for n in ("", "replaced", "a server's")}
        for kind, plan in plans.items():
            yield f"private {name}, {kind}", lambda own=learner, p=plan: _priced(p.apply(own))
    rows = ClientRows(np.array([[1.5, -0.25, 3.0], [0.0, 0.125, -3.5], [0.5, 0.5, 0.5]]), np.array([0, 1, 1]))

    def run(plan: PrivacyPlan, learner: Any) -> object:
        seeded = replace(plan, noise_entropy=lambda number: InsecureSeededEntropy(number, "questions"))
        federation, found = Federation(learner, release=None, privacy=seeded), list[object]()
        while (step := federation.next_sum) is not None:
            assert federation.noise is not None
            noise = federation.noise.noises[step.number]
            drawn = noise.total if isinstance(noise, DistributedNoise) else noise
            vector = step.vector(rows)
            total = 20 * vector + drawn.draw(seeded.noise_entropy(step.number))
            if step.number < 1 + isinstance(learner, AFL):  # what is solved under noise has this machine's bits
                found += [step.context, vector]
            found += [step.layout.canonical(), step.room(6).canonical(), step.over(_sum(step.room(6)))]
            federation.take(SumResult(total=total, survivors=(1, 2, 3, 4)))
        return found

    for name, learner in LEARNERS.items():
        yield f"private run of {name}", lambda own=learner: run(PLAN, own)
    yield "private run of clients", lambda: run(PLANS["clients"], LEARNERS["afl"])
    form = PLAN.apply(LEARNERS["afl"])
    yield "private form of another noise", lambda: replace(PLAN, epsilon=1.0).form_of(form.learner)
    yield "private form of none", lambda: PLAN.form_of(LEARNERS["afl"])
    yield "private form again", lambda: PLAN.form_of(form.learner).releases == form.releases
    last: Any = form.learner
    step = Step.of(last, last.init())
    assert step is not None
    yield "rows that are longer than their bound", lambda: step.vector(ClientRows(np.full((1, 3), 3.9), np.array([1])))
    yield "rows that are no numbers", lambda: step.vector(ClientRows(np.full((1, 3), np.nan), np.array([1])))
    yield "targets that are a matrix", lambda: step.vector(ClientRows(np.ones((1, 3)), np.ones((1, 2))))

    def wrongly_classified() -> object:
        """A round's contribution of records of which the model is sure, and wrong: as long as it may be."""
        private: Any = PLANS["no mean"].apply(LEARNERS["logistic"]).learner
        first, model = private.next_sum(private.init()), private.init()
        model = private.update(
            model, first.from_vector(20 * first.to_vector(private.client_statistics(model, rows))), 4
        )
        sure = replace(model.linear.solution, weights=np.array([[64.0, -64.0], [0.0, 0.0], [0.0, 0.0]]))
        model = replace(model, linear=replace(model.linear, solution=sure))
        return private.client_statistics(model, ClientRows(np.eye(3)[:1], np.array([1])))["gradient"]

    yield "private residual of a record that is wrong for sure", wrongly_classified

    def beyond(factor: int) -> object:
        no_mean = PLANS["no mean"].apply(LEARNERS["afl"]).learner
        spec: Any = no_mean.next_sum(no_mean.init())
        statistics = no_mean.client_statistics(no_mean.init(), rows)
        return reach_beyond(no_mean, spec.from_vector(spec.to_vector(statistics)), len(rows) // factor)

    yield "statistics beyond their bound", lambda: [beyond(1), beyond(3)]

    def booked(*numbers: int) -> tuple[PrivacyGuarantee | None, int]:
        with TemporaryDirectory() as folder:
            budget = Budget(epsilon=2.0, delta=1e-5, unit="record", adjacency="add-remove", population="questions")
            ledger = Ledger.create(Path(folder) / "ledger", budget)
            for number in numbers:
                form.charge(number, ledger, session_id=bytes(16))
            return ledger.spent(), len(ledger.releases)

    def charged() -> object:
        spent, n_releases = booked(*range(len(form.releases)))
        return spent == form.guarantee, n_releases, form.due(form.learner.init())

    yield "private form charged", charged
    yield "private form charged for a sum too many", lambda: booked(len(form.releases))
    yield "private form charged for a sum before the first", lambda: booked(-1)


def _sum(layout: Layout) -> SumProtocol:
    """Return a masked sum of six."""
    return MODES["masked"].in_one_process(layout=layout, clients=(1, 2, 3, 4, 5, 6), session_id=bytes(16)).protocol


def _priced(form: PrivateForm) -> object:
    totals = [noise.total if isinstance(noise, DistributedNoise) else noise for noise in form.noises]
    shares = [noise.share.variances for noise in form.noises if isinstance(noise, DistributedNoise)]
    context = form.learner.context_bytes(form.learner.init())
    found = [one.variances for one in totals], [one.levels for one in totals], shares, context
    return found, [release.rho for release in form.releases], form.guarantee, numbers_of(form.explain())


def _plans() -> Iterator[Question]:
    for bad in (
        {"epsilon": 0.0}, {"delta": 0.6}, {"unit": "row"}, {"adjacency": "any"}, {"colluders": 4}, {"colluders": -1},
        {"gram_share": 1.0}, {"mean_share": 1.0}, {"client_rows": 0},
    ):  # fmt: skip
        yield f"plan of {bad}", lambda bad=bad: replace(PLAN, **bad)
    yield "plan in public", lambda: PLAN.to_public()
    yield "plan read", lambda: PrivacyPlan.of_public(PLAN.to_public()) == PLAN
    yield "plan read with more", lambda: PrivacyPlan.of_public({**PLAN.to_public(), "more": 1})
    yield "plan read with texts", lambda: PrivacyPlan.of_public({**PLAN.to_public(), "epsilon": "2"})
    for limit in (1, 100):
        for adjacency in ("add-remove", "replace-one"):
            yield (
                f"gradient of {limit}, {adjacency}",
                lambda m=limit, a=adjacency: gradient_sensitivity(m, 3, a).squared,
            )
    spec: Any = AFL(**LINEAR, target_sums=False).spec
    yield "levels of noise", lambda: noise_levels(spec)
    yield "levels of noise with sums of targets", lambda: noise_levels(AFL(**LINEAR).spec)
    yield "scales", lambda: NoiseScales(variances=(4, 9, 16), rho=Fraction(1, 3)).gram_sigma
