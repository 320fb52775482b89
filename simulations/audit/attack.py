"""The one interface of all attacks: an attack plays against a mode, and says itself what must come of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.modes import MODES, Mode
from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.evaluate import Picture, Score, paired
from simulations.audit.population import EnteringRows, IntRows, Labels, Truth
from simulations.audit.view import SERVER_ALONE, AdversaryView, Coalition, Reading, RecordedSum, reading_of, view_of
from simulations.audit.workbench import Bench, Run
from simulations.report.document import Natural, Record, computed

G = TypeVar("G")

MASKED = MODES["masked"]
"""The mode whose totals are attacked: every mode releases the same ones."""

VICTIM = 2
"""The client that an attack on one client of a cohort is after."""

PICTURES = 6
"""Rows that one score shows."""


class Expectation(StrEnum):
    """What a report says if a cell does not turn out so."""

    LEAKS = "leaks"
    HIDDEN = "hidden"
    OPEN = "open"


class NotTriedError(Exception):
    """An attack could not be tried, for the reason that a report then gives instead of a verdict."""


class TooLargeError(NotTriedError):
    """An attack did not run to its end at this size, which says nothing of what it would find."""


class CoalitionScore(Record, title="coalition"):
    """What a coalition achieved."""

    mode: str
    """The mode."""
    coalition: str
    """Who pooled secrets, in words."""
    members: Natural
    """Parties beside the server."""
    should_break: bool
    """Whether the protocol states that this coalition is too large."""
    score: Score
    """Over the clients outside the coalition."""

    @computed
    def as_stated(self) -> bool:
        """Whether it opened all messages or none, as stated."""
        return self.score.hits == (self.score.trials if self.should_break else 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What came of an attack in one column of the verdict matrix.

    Args:
        score: the cell.
        coalitions: for an attack that coalitions make, each of them.
        by_sums: for an attack on many sums, the score by how many of them were used.
    """

    score: Score
    coalitions: tuple[CoalitionScore, ...] = ()
    by_sums: Mapping[int, Score] = field(default_factory=dict)


class Attack(ABC):
    """One attack: a line of the verdict matrix.

    Attributes:
        name: what the command line and people call it.
        former_name: what it was called before; JSON reports keep that name, and the command line still takes it.
        title: a line of the matrix, in words that a person who is no cryptographer understands.
        explanation: what the attacker does, what counts as success and what chance is, in two or three sentences.
        by_cohort: whether reports show how it fares against totals as the cohort grows.
        by_rows: whether reports show how it fares against a plain message as a client holds more rows.
        if_open: what to say of a mode that promises nothing against it and in which it wins.
    """

    name: str
    former_name: str = ""
    title: str
    explanation: str
    by_cohort: bool = False
    by_rows: bool = False
    if_open: str = ""

    @property
    def json_name(self) -> str:
        """Its name in JSON reports."""
        return self.former_name or self.name

    def expected(self, mode: Mode | None) -> Expectation | None:
        """What must come of it in a mode, or, for no mode, in the column of the total; None where it does not apply."""
        if mode is None:
            return None
        return Expectation.LEAKS if in_the_clear(mode) else Expectation.HIDDEN

    @abstractmethod
    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack real sums.

        Args:
            bench: rows, and sums of them.
            mode: of the sums; None for the column of the total.
            trials: how many sums to make, for an attack that needs its own.

        Raises:
            NotTriedError: it cannot be tried on this bench.
        """


class Guesser(Protocol[G]):
    """The two halves of an attack: ``guess`` sees the view alone, ``score`` sees the guess and the truth."""

    @abstractmethod
    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> G:
        """What the attacker says about a client's rows, or, for no client, about all that the total holds."""

    @abstractmethod
    def score(self, guess: G, truth: Truth, rng: np.random.Generator) -> Score:
        """How good that is."""


def attacked(
    attack: Guesser[Any], view: AdversaryView, target: PartyId | None, truth: Truth, rng: np.random.Generator
) -> Score:
    """Guess, then score: nothing of the truth reaches the guess."""
    return attack.score(attack.guess(view, target, rng), truth, rng)


_Target = tuple[AdversaryView, PartyId | None, Truth]
"""What is seen, whose rows are wanted (nobody's in particular: the total's), and what is true of them."""


class SentAttack(Attack):
    """An attack on what was really sent in the sums that all attacks on messages share."""

    @abstractmethod
    def against_messages(self, bench: Bench, runs: list[Run]) -> Score:
        """Attack every client's message of several sums.

        Raises:
            TooLargeError: some were too large, and nothing leaked from the others.
        """

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack the bench's cohorts."""
        assert mode is not None
        return Outcome(score=self.against_messages(bench, bench.runs(mode)))


class MessageAttack(SentAttack, Guesser[G]):
    """An attack on the one message that carries a client's vector, and perhaps on the total in its place.

    Attributes:
        on_totals: whether it makes sense against a total; others ask for what a total is made to show.
    """

    on_totals: bool = False

    def expected(self, mode: Mode | None) -> Expectation | None:
        """As every attack; nothing is promised of a total."""
        if mode is None:
            return Expectation.OPEN if self.on_totals else None
        return super().expected(mode)

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack the bench's cohorts, or their totals."""
        if mode is None:
            return Outcome(score=self._pooled(bench, self._totals(bench)))
        return super().play(bench, mode, trials)

    def against_messages(self, bench: Bench, runs: list[Run]) -> Score:
        """Attack each message by itself."""
        return self._pooled(bench, self._messages(bench, runs))

    def _messages(self, bench: Bench, runs: list[Run]) -> Iterator[_Target]:
        for cohort, recorded in runs:
            view = view_of((recorded,), SERVER_ALONE, bench.known(bench.worlds(recorded.inputs)))
            for party, indices in cohort.items():
                yield view, party, bench.truth(indices, recorded.inputs[party])

    def _totals(self, bench: Bench) -> Iterator[_Target]:
        for cohort, recorded in bench.runs(bench.totals_of):
            released = recorded.released()
            truth = bench.truth(np.concatenate([cohort[party] for party in released.survivors]), released.total)
            yield view_of((recorded,), SERVER_ALONE, bench.known()), None, truth

    def _pooled(self, bench: Bench, targets: Iterable[_Target]) -> Score:
        scores, too_large = list[Score](), list[str]()
        for view, party, truth in targets:
            try:
                scores.append(attacked(self, view, party, truth, bench.rng))
            except TooLargeError as reason:
                too_large.append(str(reason))
        score = Score.pooled(scores)
        if too_large and not score.leaked:
            n_targets = len(scores) + len(too_large)
            raise TooLargeError(f"{self.title}, at {len(too_large)} of {n_targets} targets: {too_large[0]}")
        return score


@dataclass(frozen=True, kw_only=True)
class ReadingAttack(MessageAttack[Any]):
    """An attack that takes a message, or a total, for a Gram and a cross-correlation: all of it is in its fields.

    Args:
        name, title, explanation, on_totals, by_cohort, by_rows: as of every attack on a message.
        read: what a reading says, to an adversary that knows candidate rows.
        scored: how good that is; it gets None where there was no reading.
        sure: whether it wins over every message in the clear.
    """

    name: str
    title: str
    explanation: str
    read: Callable[[Reading, EnteringRows], Any]
    scored: Callable[[Any, Truth, np.random.Generator], Score]
    on_totals: bool = False
    by_cohort: bool = False
    by_rows: bool = False
    sure: bool = True

    def expected(self, mode: Mode | None) -> Expectation | None:
        """As every attack on a message; nothing is promised in the clear where it is not sure."""
        return Expectation.OPEN if mode and not self.sure and in_the_clear(mode) else super().expected(mode)

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Any:
        """What the reading says; None where there is none."""
        reading = reading_of(view, target)
        return None if reading is None else self.read(reading, view.known.rows)

    def score(self, guess: Any, truth: Truth, rng: np.random.Generator) -> Score:
        """How good that is."""
        return self.scored(guess, truth, rng)


class VectorGuesser(Guesser[IntVector | None]):
    """Whoever guesses a client's whole contribution."""

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial, every number of it. A blind guess hits less often than a row of the pool."""
        hit = guess is not None and np.array_equal(guess, truth.vector)
        return Score(hits=int(hit), trials=1, chance=1 / truth.pool_size)


class VictimAttack(Attack, Guesser[G]):
    """An attack on one client of a small cohort, another cohort for each trial.

    Attributes:
        cohort_size: clients of each.
        coalition: who attacks.
    """

    cohort_size: int = 5
    coalition: Coalition = SERVER_ALONE

    @abstractmethod
    def sums(self, bench: Bench, mode: Mode, vectors: Mapping[PartyId, IntVector]) -> tuple[RecordedSum, ...]:
        """Return the sums that the attack needs, of clients with these contributions."""

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack the victim of each cohort, until one that must win, or may, has won beyond doubt."""
        assert mode is not None
        scores = list[Score]()
        may_win = self.expected(mode) is not Expectation.HIDDEN
        for _ in range(trials):
            if may_win and Score.pooled(scores).leaked:
                break
            cohort = bench.cohort(self.cohort_size)
            vectors = bench.vectors(cohort)
            view = view_of(self.sums(bench, mode, vectors), self.coalition, bench.known())
            scores.append(attacked(self, view, VICTIM, bench.truth(cohort[VICTIM], vectors[VICTIM]), bench.rng))
        return Outcome(score=Score.pooled(scores))


# What modes promise


PROBE = tuple(range(1, 6))
"""A cohort that every mode can serve; what is read of its guarantee holds for all."""


def in_the_clear(mode: Mode) -> bool:
    """Whether a message is its client's vector itself."""
    return mode.guarantee(PROBE).plaintext_upload


# Ways to score that several attacks share


def score_members(guess: NDArray[np.float64] | None, truth: Truth, rng: np.random.Generator) -> Score:
    """Pairs of a row that was used and one that was not, by a guess that gives every candidate a score."""
    scores = np.zeros(len(truth.is_member)) if guess is None else guess
    return paired(list(scores[truth.is_member]), list(scores[~truth.is_member]), rng)


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

    A blind guess that names as many rows of the pool as the target holds is right about that part of them.
    """
    rows = truth.rows[:0] if guess is None else guess.rows
    guessed = Counter[tuple[bytes, int]]() if guess is None else Counter(map(_key, rows, guess.labels))
    hits, pictures = 0, list[Picture]()
    for row, label in zip(truth.rows, truth.labels, strict=True):
        exact = guessed[_key(row, label)] > 0
        guessed[_key(row, label)] -= exact
        hits += exact
        if len(pictures) < PICTURES:
            pictures.append(Picture(true=row, rebuilt=row if exact else _nearest(row, rows), exact=exact))
    n = len(truth.rows)
    return Score(hits=hits, trials=n, chance=min(1.0, n / truth.pool_size), pictures=tuple(pictures))


def _key(row: NDArray[np.int64], label: int) -> tuple[bytes, int]:
    return np.asarray(row, dtype=np.int64).tobytes(), int(label)


def _nearest(row: NDArray[np.int64], rows: IntRows) -> NDArray[np.int64] | None:
    """The guess that comes closest, for the eye."""
    if not len(rows):
        return None
    best: NDArray[np.int64] = rows[int(np.argmin(np.abs(rows.astype(float) - row).sum(axis=1)))]
    return best
