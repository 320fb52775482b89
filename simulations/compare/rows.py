"""Everything that a comparison trained as one flat table: a row for each model, exact, by gradients or under noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from simulations.compare.baselines import BaselineRecord
from simulations.compare.private import PrivateComparison, Trust
from simulations.compare.runs import RunRecord
from simulations.report.document import Count, Natural, NotNegative, Part, Positive, Record, Sha256


class Row(Record, title="row"):
    """One trained model: what was asked for, what it reached and what a client paid; null where a name says nothing."""

    learner: str
    """The closed form or baseline, with the size that --sweep gave it, or its depth where it is private."""
    mode: str
    """How the sums were made; baseline where no closed form was trained."""
    clients: Count
    """Clients of the cohort."""
    partition: str
    """How training rows were dealt."""
    split: Literal["given", "drawn"]
    """Whether the test rows are the data set's own, or drawn anew from all rows by the seed."""
    seed: Natural
    """Seed of this model."""
    trust: Trust | None = None
    """Who adds noise; non-private for exact totals that are solved like noisy ones, null for exact runs."""
    target_epsilon: Positive | None = None
    """The budget that was asked for; null without noise, here and below."""
    epsilon: Positive | None = None
    """Epsilon that the noise really gives."""
    delta: Positive | None = None
    """Its delta."""
    unit: str | None = None
    """Who is protected."""
    adjacency: str | None = None
    """What a neighbouring data set is."""
    gram_share: NotNegative | None = None
    """Part of the statistics' budget that goes to the Gram matrix."""
    mean_share: NotNegative | None = None
    """Part of the whole budget that buys the rows' mean."""
    survivors: Count | None = None
    """Clients whose vectors are in a sum; null for dpsgd, which has no sums of clients."""
    test_accuracy: Part | None
    """Part of the test rows that are classified correctly; null for real targets."""
    test_r2: float | None = None
    """R2 on the test rows; null for class labels."""
    weights_sha256: Sha256 | None = None
    """SHA-256 of everything that an exact run's model learned."""
    bitwise_equal_to_pooled: bool | None = None
    """Whether an exact run's bytes are those of the survivors' pooled rows."""
    bytes_up_per_client: Natural
    """Bytes that a client sent over all sums or rounds; under noise those of the last repetition."""
    messages_per_client: Count
    """Messages in which it sent them."""
    client_seconds: NotNegative
    """Time that a client computed; of a repetition under noise the mean of all."""

    @property
    def quality(self) -> float:
        """Accuracy, or R2 of real targets."""
        found = self.test_r2 if self.test_accuracy is None else self.test_accuracy
        return float("nan") if found is None else found


def rows(
    runs: Iterable[RunRecord], baselines: Iterable[BaselineRecord], private: Iterable[PrivateComparison], *, seed: int
) -> Iterator[Row]:
    """Yield a row for each exact run and baseline, and for each repetition under noise and without."""
    for run in runs:
        yield _row(run, split="given", seed=seed)
    for one in baselines:
        yield _row(one, split="given", seed=seed, messages_per_client=one.rounds)
    for among in private:
        yield from _private(among)


def _private(among: PrivateComparison) -> Iterator[Row]:
    asked = {name: getattr(among.terms, name) for name in ("delta", "unit", "adjacency", "gram_share", "mean_share")}
    for record in among.records:
        chosen = dict(record.tuned.chosen) if record.tuned else {}
        noise = dict.fromkeys(asked) if record.target_epsilon is None else asked | chosen
        known = {"learner": among.terms.name, "partition": among.partition, "split": "drawn", **noise}
        for number, accuracy in enumerate(record.accuracies):
            yield _row(record, **known, seed=among.seed + number, test_accuracy=accuracy)
    for one in among.baselines:
        known = {"mode": "baseline", "clients": among.clients, "partition": among.partition, "split": "drawn"}
        known |= {name: asked[name] for name in ("delta", "unit", "adjacency")} | {"trust": "central"}
        spent = {"messages_per_client": one.rounds, "client_seconds": one.train_seconds / among.clients}
        for number, accuracy in enumerate(one.accuracies):
            yield _row(one, **known, **spent, seed=among.seed + number, test_accuracy=accuracy)


def _row(record: Record, **known: Any) -> Row:
    """What a record says under a row's names, beside what is known of it."""
    said = {name: getattr(record, name) for name in Row.model_fields if hasattr(record, name)}
    return Row(**{name: value for name, value in {**said, **known}.items() if name in Row.model_fields})
