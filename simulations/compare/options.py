"""The options of ``compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from analytic.row_format import RowFormat
from analytic.scaling import Agreement
from analytic.sensitivity import ADJACENCIES, UNITS, Adjacency, Unit
from analytic_secagg.console.arguments import budgets, count, file, items, natural, number, wholes
from analytic_secagg.console.declaration import changed, option, part
from analytic_secagg.console.output_files import refuse_same_file
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import CROSS_VALIDATED, LEARNERS, LearnerEntry, choose_learners
from analytic_secagg.modes import LARGEST_COMPLETE, Mode
from secagg.config import MAX_CLIENTS
from simulations.command_line.shared_arguments import DataOptions, format_option, modes_option
from simulations.compare.baselines import BASELINES, Averaging
from simulations.compare.dpsgd import DPSGD, METHODS
from simulations.data.partitions import Partition, parse_partition


def _rate(text: str) -> float:
    return number(text, "a number of at least 0 and below 1, such as 0.1 for a tenth", lambda rate: 0 <= rate < 1)


def _ridge(text: str) -> float | Literal["cv"]:
    if text == CROSS_VALIDATED:
        return CROSS_VALIDATED
    return number(text, f"a finite number of at least 0, or {CROSS_VALIDATED}", lambda penalty: penalty >= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationOptions:
    """Options of the federation."""

    modes: tuple[Mode, ...] = modes_option()
    clients: tuple[int, ...] = option(
        f"cohort sizes; above {LARGEST_COMPLETE} clients each client is masked with a few neighbours only, enough for "
        "10 % corrupt clients and for dropouts of 10 %, or of 1.5 times --dropout if that is more",
        lambda text: wholes(text, at_least=1, at_most=MAX_CLIENTS),
        default=(20,),
        metavar="N,...",
    )
    partition: tuple[Partition, ...] = option(
        "iid, dirichlet:ALPHA or shards:S; may be repeated",
        parse_partition,
        default=(parse_partition("dirichlet:0.1"),),
        metavar="HOW",
        shown="dirichlet:0.1",
        repeated=True,
    )
    dropout: float = option(
        "fraction of the clients that drop out before they send a vector, the same in every mode; in masked modes up "
        "to half as many more drop out after sending, and their rows still count",
        _rate,
        default=0.0,
        metavar="RATE",
    )
    dropout_anew: bool = option(
        "let other clients drop out in every sum (inconsistent participation) instead of the same in all",
        default=False,
    )
    label_noise: float = option(
        "fraction of the training labels that are wrong: each becomes one of the other classes, drawn with --seed",
        _rate,
        default=0.0,
        metavar="RATE",
    )
    seed: int = option(
        "draws partitions, dropouts, own test rows, the baselines' batches and, with --epsilon, the simulated noise; "
        "keys and masks come from the operating system",
        natural,
        default=0,
    )

    def __post_init__(self) -> None:
        if self.dropout_anew and not self.dropout:
            raise UsageError(
                "--dropout-anew needs clients that vanish, and with --dropout 0 none do; add --dropout RATE"
            )

    @property
    def partitions(self) -> tuple[str, ...]:
        """The different ways to deal the rows."""
        return tuple(dict.fromkeys(way.name for way in self.partition))


def _baselines(text: str) -> tuple[Averaging | DPSGD, ...]:
    """Gradient methods by their names; ``all`` are those that need no budget."""
    names = tuple(BASELINES) if text == "all" else tuple(dict.fromkeys(items(text)))
    if unknown := [name for name in names if name not in METHODS]:
        raise UsageError(f"a baseline is one of {', '.join(METHODS)}, or all of them as all, not {unknown[0]!r}")
    return tuple(METHODS[name] for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningOptions:
    """Options of learners and baselines."""

    learner: tuple[LearnerEntry, ...] = option(
        f"closed forms out of {', '.join(LEARNERS)}, or all",
        choose_learners,
        default=(LEARNERS["afl"],),
        metavar="NAME,...",
        shown="afl",
    )
    baselines: tuple[Averaging | DPSGD, ...] = option(
        f"gradient methods on the same rows, for comparison only: {', '.join(BASELINES)}, or all of these; with "
        "--epsilon also dpsgd",
        _baselines,
        default=(),
        metavar="NAME,...",
        shown="none",
    )
    own: tuple[str, ...] = option(
        "a parameter of a learner's or baseline's own, such as n_layers=5 for deepafl; may be repeated",
        str,
        default=(),
        flag="--option",
        metavar="NAME=VALUE",
        repeated=True,
    )
    sweep: tuple[str, ...] = option(
        "sizes of a learner or baseline, one run for each, such as random.d_phi=256,1024 or fedavg.rounds=10,200; "
        "may be repeated; ignored by the runs of --epsilon",
        str,
        default=(),
        metavar="NAME=VALUE,...",
        repeated=True,
    )
    ridge: float | Literal["cv"] | None = option(
        "penalty of the solve, or cv for the one that cross-validation over everybody's training rows takes, from "
        "the same sum (afl, fedhip)",
        _ridge,
        default=None,
        metavar="PENALTY",
        shown="0; 0.01 for what --epsilon adds",
    )
    ri_gamma: float = option(
        "AFL's gamma (RI process): added to each client's Gram, and removed from the total exactly",
        lambda text: number(text, "a finite number of at least 0", lambda penalty: penalty >= 0),
        default=0.0,
        flag="--ri",
        metavar="GAMMA",
    )
    feature_format: RowFormat | Agreement | None = format_option(
        "all training rows and so is for simulations only", agreements=True
    )
    target_format: RowFormat | None = option(
        "fixed-point format of real targets: Q5.11 (signed), UQ5.11, or auto, which looks at all training rows",
        lambda text: None if text == "auto" else RowFormat.parse(text),
        default=None,
        shown="auto",
    )
    evaluate: bool = option(
        "also evaluate each model through one more sum: accuracy, recall, precision, AUC and calibration, or R2 and "
        "errors of real targets, from clients that hold the test rows and show none",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyOptions:
    """Budgets of differential privacy; the others say nothing without ``epsilon``."""

    GROUP_DESCRIPTION: ClassVar[str] = """\
With --epsilon there are also runs with noise, for those of afl, fedhip, random, logistic, deepafl and safle that
--learner names, with the cohorts, partitions, dropouts and --seed above. Distributed noise runs in each of --modes,
central and local noise in the clear. Each seed draws its own test rows. Rows are scaled to norm 1 and have their own
formats, whatever --format says; the ridge is 0.01 unless --ridge is given; deepafl has n_layers=1, d_phi=64 and
d_f=64, random d_phi=64 and activation=gelu, safle n_buckets=2, group_size=1 and even thresholds from low=0 to high=1,
unless --option sets them; logistic takes d_phi random features where --option says so.
"""

    epsilon: tuple[float, ...] | None = option(
        "also compare accuracy for these privacy budgets, such as 0.5,1,2,4,8, of learners with a private form",
        budgets,
        default=None,
        metavar="E,...",
    )
    delta: float = option("delta of every guarantee", number, default=1e-5, metavar="D")
    unit: Unit = option("who is protected", choices=UNITS, default="record")
    adjacency: Adjacency = option("neighbouring data sets", choices=ADJACENCIES, default="add-remove")
    min_noise_shares: int | None = option(
        "smallest number of clients that add a share of the noise to a released total; the noise is sized for them",
        count,
        default=None,
        old_flag="--promise",
        metavar="N",
        shown="all that --dropout leaves",
    )
    colluders: int = option(
        "survivors that may reveal their share of the noise; 0 only where clients receive nothing that follows from a "
        "noisy total",
        natural,
        default=1,
        metavar="N",
    )
    mean_share: float = option(
        "part of the budget for the rows' mean, by which they are centred; 0 does not release it",
        lambda text: number(text, "a number from 0 to below 1", lambda share: 0 <= share < 1),
        default=0.05,
        metavar="F",
    )
    gram_share: float = option(
        "the Gram's part of the rest of the budget",
        lambda text: number(text, "a number between 0 and 1", lambda share: 0 < share < 1),
        default=0.3,
        metavar="F",
    )
    seeds: int = option("repetitions of each", count, default=5, metavar="N")
    tune: tuple[str, ...] = option(
        "settings of a learner or of dpsgd that are tried, such as logistic.step=4,8 or dpsgd.learning_rate=8,16, "
        "gram_share and mean_share too: each budget gets the combination that is best on the last fifth of the "
        "training rows; may be repeated",
        str,
        default=(),
        metavar="NAME=VALUE,...",
        shown="20 of dpsgd",
        repeated=True,
    )
    tune_seeds: int = option(
        "how many repetitions' training rows settings are chosen on", count, default=1, metavar="N"
    )

    def __post_init__(self) -> None:
        if self.epsilon is None and (without_effect := changed(self)):
            raise UsageError(f"{without_effect[0]} needs --epsilon to have an effect; add --epsilon E,...")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options of files and of what is printed."""

    json: Path | None = option(
        "write every number (docs/reference/compare-json.md)", file, default=None, metavar="FILE"
    )
    verbose: bool = option(
        "also print hashes, intervals, a float64 model of the same rows, messages, seconds and memory", default=False
    )
    jobs: int = option(
        "runs that are trained at the same time, each in a process of its own: more than one fills the cores, takes "
        "the memory of as many, and lets the table's seconds be those of a busy machine",
        count,
        default=1,
        metavar="N",
    )
    explain: bool = option("also print what each mode guarantees and costs, for its largest sum", default=False)
    html: Path | None = option("write one self-contained page with table and plots", file, default=None, metavar="FILE")
    plot: Path | None = option(
        "write one picture: accuracy by partition, bytes by mode", file, default=None, metavar="FILE.svg"
    )
    frontier: Path | None = option(
        "write one picture: accuracy against a client's bytes, messages and seconds, by learner, size and baseline",
        file,
        default=None,
        metavar="FILE.svg",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """All that ``compare`` understands.

    Raises:
        UsageError: options that are right alone and have no effect, or a bad one, beside the others.
    """

    data: DataOptions = part(DataOptions, "data")
    federation: FederationOptions = part(FederationOptions, "federation")
    learning: LearningOptions = part(LearningOptions, "learning")
    privacy: PrivacyOptions = part(PrivacyOptions, "privacy of the result (differential privacy)")
    output: OutputOptions = part(OutputOptions, "output")

    def __post_init__(self) -> None:
        output = self.output
        places = {"json": output.json, "html": output.html, "plot": output.plot, "frontier": output.frontier}
        refuse_same_file({"--data": self.data.data, **{f"--{name}": path for name, path in places.items()}})
        if self.learning.ridge == CROSS_VALIDATED and self.privacy.epsilon is not None:
            raise UsageError("--ridge cv has no private form, and --epsilon asks for one: state a ridge")
        if self.learning.ri_gamma and self.privacy.epsilon is not None:
            raise UsageError(
                "--ri has no effect on what --epsilon adds: private learners have no RI process; leave out one of the "
                "two"
            )
        if self.federation.label_noise and self.privacy.epsilon is not None:
            raise UsageError(
                "--epsilon draws test rows anew from all rows, so that --label-noise would reach them; leave out one "
                "of the two"
            )
