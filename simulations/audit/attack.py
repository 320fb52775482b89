"""The one interface of all attacks: what an attack sees and needs, its guess, its score, and what must come of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.modes import MODES, Mode
from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.evaluate import Score, paired
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import EnteringRows, IntRows, Labels, Truth
from simulations.audit.view import Reading, RecordedSum
from simulations.audit.workbench import Bench, Run

if TYPE_CHECKING:
    from simulations.audit.columns import Column

G = TypeVar("G")

MASKED = MODES["masked"]
"""The mode that faults are planted in: every mode releases the same totals."""

VICTIM = 2
"""The client that an attack on one client of a cohort is after."""

FEW_CLIENTS = 5
"""Of a cohort that is made for one trial."""

NEVER = 1e-12
"""A chance that is not told from a smaller one."""

MOST_TRIALS = 40
"""Sums that are made for one attack, where so many are needed to notice a leak."""


class Unit(StrEnum):
    """Whom an attack learns something about."""

    ROW = "row"
    SITE = "site"
    COHORT = "cohort"


class Limit(StrEnum):
    """Numbers of totals and models that an owner may limit; a decision rule has each by this name."""

    REBUILT_ROWS = "rebuilt_rows"
    """Rows that come out exactly, with their labels."""
    MEMBERSHIP = "membership"
    """The area under the ROC curve of whether a row was used, for the tenth of the rows that lies farthest out."""
    ATTRIBUTE = "attribute"
    """How often a hidden value of a known row is told from another one, above a guess that saw nothing."""
    GROUP_SHARE = "group_share"
    """The mean error of the part of all rows that belongs to a group: the limit is the least that it must be."""


class Expectation(StrEnum):
    """The outcome that a report expects of an attack."""

    LEAKS = "leaks"
    HIDDEN = "hidden"
    OPEN = "open"


class NotTriedError(Exception):
    """An attack could not be tried, for the reason that a report then gives instead of an outcome."""


class TooLargeError(NotTriedError):
    """An attack did not run to its end at this size, which says nothing of what it would find."""


class Attack(ABC):
    """One attack: a line of the report.

    Attributes:
        name: what the command line and people call it.
        former_name: what it was called before; the command line still takes it.
        title: what is attacked, in words that a person who is no cryptographer understands.
        explanation: what the attacker does, what counts as success and what chance is, in two or three sentences.
        needs: what it knows beforehand.
        unit: whom it learns something about.
        limit: which number of a total or a model an owner may limit; None where such numbers are reported only.
        if_open: what to say of a mode that promises nothing against it and in which it wins.
        made: what an attack that makes totals of its own is about, in the words of a report.
    """

    name: str
    former_name: str = ""
    title: str
    explanation: str
    needs: Knowledge = Knowledge.ALL_BUT_ONE
    unit: Unit = Unit.SITE
    limit: Limit | None = None
    if_open: str = ""
    made: str = "total of {clients} clients under a crafted map"

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return what must come of it in a mode, or, for no mode, of totals; None where it does not apply."""
        if mode is None:
            return None
        return Expectation.LEAKS if in_the_clear(mode) else Expectation.HIDDEN

    def control(self, bench: Bench, trials: int) -> Score | None:
        """Attack where nothing protects and it must win, for an attack that does not apply to messages in the clear.

        None where a planted fault shows that it works, or where there is no such place.
        """
        return None

    @abstractmethod
    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack real sums.

        Args:
            bench: rows, and sums of them.
            mode: of the sums; None for totals, which are the same in every mode.
            trials: how many sums to make, for an attack that needs its own.

        Raises:
            NotTriedError: it cannot be tried on this bench.
        """


class Guesser(Protocol[G]):
    """The two halves of an attack: ``guess`` gets the exposure alone, ``score`` the guess and the truth."""

    needs: Knowledge = Knowledge.ALL_BUT_ONE

    @abstractmethod
    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> G:
        """Return what the attacker concludes about a client's rows, or about all rows of a total or a model."""

    @abstractmethod
    def score(self, guess: G, truth: Truth, rng: np.random.Generator) -> Score:
        """Return how good that is."""


def attacked(attack: Guesser[Any], seen: Exposure, known: Known, truth: Truth, rng: np.random.Generator) -> Score:
    """Guess, then score: nothing of the truth reaches the guess, and no more than the attack needs."""
    return attack.score(attack.guess(seen, known.granted(attack.needs), rng), truth, rng)


def on_a_total(attack: Guesser[Any], bench: Bench, clients: int) -> Score:
    """Attack the total of one cohort."""
    cohort = bench.cohort(clients)
    total = bench.total(cohort)
    truth = bench.truth(np.concatenate(list(cohort.values())), total.released().total)
    return attacked(attack, Exposure.of((total,), learner=bench.learner), bench.known(), truth, bench.rng)


Target = tuple[Exposure, Known, Truth]
"""What is seen, what is known beforehand, and what is true of the rows behind it."""


class SentAttack(Attack):
    """An attack on what was really sent in the sums that all attacks on messages share."""

    @abstractmethod
    def against_messages(self, bench: Bench, runs: list[Run]) -> Score:
        """Attack every client's message of several sums.

        Raises:
            TooLargeError: some were too large, and nothing leaked from the others.
        """

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack the bench's cohorts."""
        assert mode is not None
        return self.against_messages(bench, bench.runs(mode))


class ExposureAttack(SentAttack, Guesser[G]):
    """An attack on whatever exposure it can read: messages, totals with and without noise, models.

    This is the class for an attack of one's own: give ``name``, ``title``, ``explanation``, ``sees`` and ``needs``, and
    write ``guess`` and ``score``. A file of ``simulations/audit/attacks`` with such an object named ``ATTACK``, or an
    entry point of another package, is all that it takes.

    Attributes:
        sees: the kinds of exposures that it makes sense for.
        least: how many trials it takes at least over protected messages.
    """

    sees: frozenset[Kind] = frozenset({Kind.MESSAGE})
    least: int = 1

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return that messages must hide it; of totals and models nothing is promised but an owner's limits."""
        if mode is None:
            return Expectation.OPEN if self.sees - {Kind.MESSAGE} else None
        return super().expected(mode) if Kind.MESSAGE in self.sees else None

    def against_messages(self, bench: Bench, runs: list[Run]) -> Score:
        """Attack each message by itself."""
        return self.against(_messages(bench, runs), bench.rng)

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack the bench's messages, then those of clients with few rows, as many as decide.

        In the clear, where it shows that it works, it stops when it has won beyond doubt.
        """
        assert mode is not None
        if in_the_clear(mode):
            messages = (one for some in (bench, bench.few) for one in _messages(some, some.each_run(mode)))
            return self.against(messages, bench.rng, until_won=True)
        score = self.against_messages(bench, bench.runs(mode))
        for run in bench.few.each_run(mode):
            if score.trials >= self.least and score.is_enough:
                break
            score = Score.pooled((score, self.against_messages(bench.few, [run])))
        return score

    def targets(self, column: Column) -> Iterator[Target]:
        """Yield what it attacks of a column: the exposure that all attacks share, unless it needs others."""
        yield column.standard

    def against(self, targets: Iterable[Target], rng: np.random.Generator, *, until_won: bool = False) -> Score:
        """Attack exposures one by one, all of them or until enough are won, and pool the scores.

        Raises:
            TooLargeError: some were too large, and nothing leaked from the others.
        """
        scores, too_large = list[Score](), list[str]()
        for seen, known, truth in targets:
            try:
                scores.append(attacked(self, seen, known, truth, rng))
            except TooLargeError as reason:
                too_large.append(str(reason))
            if until_won and Score.pooled(scores).leaked:
                break
        score = Score.pooled(scores)
        if too_large and not score.leaked:
            n_targets = len(scores) + len(too_large)
            raise TooLargeError(f"{self.title}, at {len(too_large)} of {n_targets} targets: {too_large[0]}")
        return score


def _messages(bench: Bench, runs: Iterable[Run]) -> Iterator[Target]:
    for cohort, recorded in runs:
        known = bench.known(bench.worlds(recorded.inputs))
        for party, indices in cohort.items():
            seen = Exposure.of((recorded,), party, learner=bench.learner)
            yield seen, known, bench.truth(indices, recorded.inputs[party])


@dataclass(frozen=True, kw_only=True)
class ReadingAttack(ExposureAttack[Any]):
    """An attack that takes a vector for a Gram and a cross-correlation: all of it is in its fields.

    Args:
        name, title, explanation, needs, unit, limit, sees: as of every attack on an exposure.
        read: what the attacker concludes from a reading and the rows that it knows.
        scored: how good that is; it gets None where there was no reading.
        sure: whether it wins over every message in the clear.
    """

    name: str
    title: str
    explanation: str
    read: Callable[[Reading, EnteringRows], Any]
    scored: Callable[[Any, Truth, np.random.Generator], Score]
    needs: Knowledge = Knowledge.NOTHING
    unit: Unit = Unit.SITE
    limit: Limit | None = None
    sees: frozenset[Kind] = frozenset({Kind.MESSAGE})
    sure: bool = True

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return what every attack on an exposure does; nothing is promised in the clear where it is not sure."""
        return Expectation.OPEN if mode and not self.sure and in_the_clear(mode) else super().expected(mode)

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> Any:
        """Return what the reading tells; None where there is none."""
        reading = seen.reading
        return None if reading is None else self.read(reading, known.rows)

    def score(self, guess: Any, truth: Truth, rng: np.random.Generator) -> Score:
        """Return how good that is."""
        return self.scored(guess, truth, rng)


TOTALS = frozenset({Kind.TOTAL, Kind.NOISY_TOTAL})
ANY_SUM = TOTALS | {Kind.MESSAGE}


class VectorGuesser(Guesser[IntVector | None]):
    """Whoever guesses a client's whole contribution."""

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial, every number of it. A blind guess names all n rows, in any order: at most n! p^n of the time."""
        hit = guess is not None and np.array_equal(guess, truth.vector)
        n, likeliest = len(truth.rows), max(truth.likeliest_row, NEVER)
        all_named = math.exp(math.lgamma(n + 1) + n * math.log(likeliest))
        return Score(hits=int(hit), trials=1, chance=max(NEVER, min(likeliest, all_named)))


class VictimAttack(Attack, Guesser[G]):
    """An attack on one client of a small cohort, another cohort for each trial."""

    @abstractmethod
    def sums(self, bench: Bench, mode: Mode, vectors: Mapping[PartyId, IntVector]) -> tuple[RecordedSum, ...]:
        """Return the sums that the attack needs, of clients with these contributions."""

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack the victim of each cohort, until one that must win, or may, has won beyond doubt."""
        assert mode is not None
        scores = list[Score]()
        may_win = self.expected(mode) is not Expectation.HIDDEN
        for number in range(max(trials, MOST_TRIALS)):
            found = Score.pooled(scores)
            if (may_win and found.leaked) or (number >= trials and (may_win or found.is_enough)):
                break
            cohort = bench.cohort(FEW_CLIENTS)
            vectors = bench.vectors(cohort)
            seen = Exposure.of(self.sums(bench, mode, vectors))
            truth = bench.truth(cohort[VICTIM], vectors[VICTIM])
            scores.append(attacked(self, seen, bench.known(), truth, bench.rng))
        return Score.pooled(scores)


# What modes promise


PROBE = tuple(range(1, 6))
"""A cohort that every mode can serve; what is read of its guarantee holds for all."""


def in_the_clear(mode: Mode) -> bool:
    """Whether a message is its client's vector itself."""
    return mode.guarantee(PROBE).plaintext_upload


class MembershipAttack(ExposureAttack[NDArray[np.float64]]):
    """An attack that gives each candidate a score: the higher, the likelier it was used."""

    needs = Knowledge.ONE_ROW
    unit = Unit.ROW
    limit = Limit.MEMBERSHIP

    def score(self, guess: NDArray[np.float64], truth: Truth, rng: np.random.Generator) -> Score:
        """Score pairs of a row that was used and one that was not."""
        return score_members(guess, truth, rng)


# Ways to score that several attacks share


def score_members(guess: NDArray[np.float64] | None, truth: Truth, rng: np.random.Generator) -> Score:
    """Pairs of a row that was used and one that was not, by a guess that gives every candidate a score."""
    scores, member, far = np.zeros(len(truth.is_member)) if guess is None else guess, truth.is_member, truth.is_outlying
    score = paired(list(scores[member]), list(scores[~member]), rng)
    outlying = tuple(map(float, scores[member & far])), tuple(map(float, scores[~member & far]))
    return score.model_copy(update={"outlying": outlying})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RebuiltRows:
    """Rows with their labels.

    Args:
        rows: shape (n, d), in the units of the row format.
        labels: shape (n,).
        certified: whether these rows give the statistics back, and no other integer rows with labels do.
    """

    rows: IntRows = field(repr=False)
    labels: Labels = field(repr=False)
    certified: bool


def score_rows(guess: RebuiltRows | None, truth: Truth, rng: np.random.Generator) -> Score:
    """One trial a true row: is it among the guessed rows, every entry and its label?

    A guess that knows no row is right less often than one that names a row of the pool.
    """
    rows = truth.rows[:0] if guess is None else guess.rows
    guessed = Counter[tuple[bytes, int]]() if guess is None else Counter(map(_key, rows, guess.labels))
    true = Counter(map(_key, truth.rows, truth.labels))
    return Score(hits=(guessed & true).total(), trials=len(truth.rows), chance=truth.likeliest_row)


def _key(row: NDArray[np.int64], label: int) -> tuple[bytes, int]:
    return np.asarray(row, dtype=np.int64).tobytes(), int(label)
