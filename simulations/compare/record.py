"""The record of a run: what was asked for, what it reached, and what it cost, whatever was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from simulations.compare.evaluated import EvaluationRecord, RegressionEvaluationRecord
from simulations.compare.run import Run
from simulations.compare.tuning import Tuned
from simulations.report.columns import Column, error_text, human_bytes, percent, yes_or_no
from simulations.report.document import (
    Count,
    Natural,
    NotNegative,
    Part,
    Positive,
    Record,
    Sha256,
    computed,
)

Cost = Literal["bytes", "messages", "seconds"]

HASH_DIGITS = 8


class ChoiceRecord(Record, title="choice"):
    """A ridge chosen by cross-validation over everybody's training rows."""

    ridge: NotNegative
    """The one that was taken."""
    ridges: tuple[NotNegative, ...]
    """Those that were tried, ascending."""
    error: tuple[NotNegative, ...]
    """For each, the mean validation error of a row: squared residuals of all targets, or parts of wrong classes."""
    standard_error: tuple[NotNegative, ...]
    """Of that mean, from how folds differ."""
    folds: Count
    """How many there were."""
    criterion: str
    """What an error is: squares or classes."""
    rule: str
    """Which ridge is taken: least, or one-standard-error."""


class RunRecord(Run, title="run"):
    """One model that was trained: a closed form over a mode, exact or under noise, or a gradient method.

    Fields are null where they say nothing of it.
    """

    model_config = ConfigDict(extra="ignore")

    survivors: Annotated[Count | None, Column(heading="survi-\nvors")] = None
    """Clients whose vectors are in a sum; the fewest of any sum where they differ. Of fedavg and fedprox those that
    took part in every round; null for dpsgd, which has no sums of clients."""
    sums: Count | None = None
    """Sums that the learner asked for; null for gradient methods."""
    test_accuracy: Annotated[Part | None, Column(heading="accuracy", text=percent)] = None
    """Part of the test rows that the model classifies correctly; null for real targets."""
    test_r2: Annotated[float | None, Column(heading="R2", text="{:.4f}".format)] = None
    """R2 of the model on the test rows, the mean over targets; null for class labels."""
    best_test_accuracy: Annotated[Part | None, Column(heading="best round", text=percent, page_only=True)] = None
    """Accuracy of fedavg's or fedprox' best round, which the test rows themselves chose."""
    float64_ridge_test_accuracy: Annotated[
        Part | None, Column(heading="float64\nridge", text=percent, page_only=True)
    ] = None
    """Accuracy of an unquantised float64 linear ridge on the same pooled rows (those of the first sum); null for real
    targets, under noise and for gradient methods."""
    float64_ridge_test_r2: Annotated[
        float | None, Column(heading="float64\nridge", text="{:.4f}".format, page_only=True)
    ] = None
    """R2 of that ridge, the mean over targets; null for class labels."""
    bitwise_equal_to_pooled: Annotated[bool | None, Column(heading="equal to\npooled?", text=yes_or_no)] = None
    """Whether the weights' bytes are those of the same closed form solved on the survivors' pooled rows; null under
    noise, and for gradient methods, which have no such law."""
    max_abs_weight_deviation: Annotated[
        NotNegative | None,
        Column(heading="deviation\nfrom pooled", text=error_text, none="not a number", page_only=True),
    ] = None
    """Largest absolute difference of a weight from the pooled model's; 0 when the bytes are equal, null when no number
    says it (weights of another number, or NaN)."""
    float64_ridge_max_abs_weight_deviation: Annotated[
        NotNegative | None,
        Column(heading="deviation from\nfloat64 ridge", text=error_text, none="not linear", page_only=True),
    ] = None
    """Largest absolute difference of a weight from that ridge's: what fixed-point rows cost. null for learners that are
    no linear map of the features, and where features are so small that float64 cannot hold that ridge's weights."""
    float64_gram_sum_max_abs_weight_deviation: Annotated[
        NotNegative | None, Column(heading="float64 Grams\nfrom pooled", text=error_text, page_only=True)
    ] = None
    """Largest absolute difference of a weight from a float64 ridge on the pooled rows' Gram matrix when the clients of
    the first sum send float64 Gram matrices, which are added and solved; 0 where products of rows are exact in
    float64."""
    float64_solved_weights_max_abs_weight_deviation: Annotated[
        NotNegative | None, Column(heading="float64 weights\nfrom pooled", text=error_text, page_only=True)
    ] = None
    """The same when they send solved weights with gamma 1 on the diagonal, as AFL's authors do."""
    certified: Annotated[bool | None, Column(heading="certified?", text=yes_or_no, page_only=True)] = None
    """Whether all that was solved is proven to be the exact solution rounded once: the hash is then the same on every
    machine; null for gradient methods."""
    uncertified: tuple[str, ...] = ()
    """Solved arrays whose bits are this machine's, each by name with how it was solved; personal weights among them.
    Empty where certified is true."""
    messages_per_client: Annotated[
        Count, Column(heading="messages\n(vector)", in_brackets="vector_messages_per_client")
    ]
    """Messages a client sent over all sums; the most of any client that took part. Of a gradient method its rounds."""
    vector_messages_per_client: Count
    """Those of them that carry a vector of the learner's size."""
    messages_per_sum: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    """Messages of a client in each sum, in order; the most of any client whose vector is in it. Fewer from the second
    on where sums carry each other's set-up."""
    bytes_up_per_client: Annotated[Count, Column(heading="up per\nclient", text=human_bytes)]
    """Bytes a client sent over all sums or rounds, headers included; the most of any client that took part. Gradient
    methods send heads or gradients as float32, dpsgd's client as if it had a row in every step."""
    bytes_down_per_client: Annotated[Natural | None, Column(heading="down per\nclient", text=human_bytes)] = None
    """Bytes a client received as messages of its sums; the most of any client that took part. The model that clients
    receive between sums and at the end is not in it: it is the same in every mode."""
    client_seconds: Annotated[NotNegative, Column(heading="client\nseconds", text="{:.4f}".format)]
    """Time a client computed, its statistics included, over all sums; mean over clients that took part. Of fedavg and
    fedprox those that hold rows; of dpsgd the whole training, divided by clients."""
    client_statistics_seconds: NotNegative | None = None
    """The part of it that is the learner's and not the mode's; mean over clients that took part."""
    server_seconds: Annotated[NotNegative | None, Column(heading="server\nseconds", text="{:.3f}".format)] = None
    """Time of the server's sessions and of the solves."""
    helpers: Natural | None = None
    """Parties beside clients and server that the mode needs."""
    helper_bytes_up: Natural | None = None
    """Bytes a helper sent; the most of any, 0 without helpers."""
    helper_bytes_down: Natural | None = None
    """Bytes a helper received; the most of any, 0 without helpers."""
    helper_seconds: NotNegative | None = None
    """Time a helper computed; the most of any, 0 without helpers."""
    wall_seconds: NotNegative
    """Time of the whole run in one process, without its reference."""
    peak_rss_bytes: Count | None = None
    """Largest resident memory of the process during the run (where the system cannot start anew, up to its end)."""
    weights_sha256: Annotated[
        Sha256 | None, Column(heading="weights", text=lambda digest: digest[:HASH_DIGITS], page_only=True)
    ] = None
    """SHA-256 of everything that a closed form learned."""
    local_test_accuracy: Part | None = None
    """Accuracy of the global model on a fifth of each client's own rows that it kept for testing; mean over clients
    that took part (under noise all clients) and hold such rows. null for learners without personal models and for real
    targets."""
    local_test_r2: float | None = None
    """R2 of the global model on those rows of all such clients together; null for class labels."""
    personalised_test_accuracy: Mapping[str, Part] | None = None
    """The same for each client's personal model, by alpha as text, from its own rows, which no noise covers there. null
    for learners without personal models and for real targets."""
    personalised_test_r2: Mapping[str, float] | None = None
    """R2 of all clients' personal models, each on its own rows, together, by alpha as text; null for class labels."""
    personalised_bitwise_equal_to_pooled: bool | None = None
    """Whether the personal weights of every client that took part, for every alpha, have the bytes of those that follow
    from the survivors' pooled total. null for learners without personal models, and under noise."""
    epsilon: Positive | None = None
    """Epsilon that the noise really gives; null without noise, here and below."""
    rho: Positive | None = None
    """The same in zero-concentrated differential privacy; null for dpsgd, here and below."""
    epsilon_zcdp: Positive | None = None
    """The same by the conversion of zero-concentrated differential privacy alone, which gives some of it away."""
    sigma_gram: NotNegative | None = None
    """Noise scale of the Gram matrix, in units of the rows' norm squared."""
    sigma_cross: NotNegative | None = None
    """Noise scale of the cross-correlation."""
    noise_multiplier: Positive | None = None
    """Standard deviation of the noise of a step of dpsgd over the clipping bound; null for others."""
    second_opinions: Mapping[str, NotNegative] | None = None
    """Epsilon by other accountants' names; empty where they are not installed."""
    clipped: Natural | None = None
    """Rows, and for units of clients contributions, that were shortened; null for exact runs."""
    choice: ChoiceRecord | None = None
    """How the ridge was chosen; null where it was stated."""
    evaluation: EvaluationRecord | RegressionEvaluationRecord | None = None
    """The model judged through one more sum over clients that hold the test rows; null without --evaluate."""
    tuned: Tuned | None = None
    """How options and shares of the budget were chosen; null where nothing was to be chosen."""
    unbeaten: tuple[Cost, ...] | None = None
    """The costs of a client for which nothing else of the same cohort, partition, budget and mode, and no baseline, was
    at least as good for at most as much, in the mean over seeds. null under central and local noise and for
    non-private runs, which are not compared."""
    explanation: Annotated[str | None, Field(exclude=True)] = None
    """What the protocol says about the largest sum."""

    @computed
    def heavy_messages_per_client(self) -> Count:
        """Deprecated name of vector_messages_per_client; the next version leaves it out."""
        return self.vector_messages_per_client

    @property
    def quality(self) -> float:
        """Accuracy, or R2 of real targets."""
        found = self.test_r2 if self.test_accuracy is None else self.test_accuracy
        return float("nan") if found is None else found

    @property
    def float64_quality(self) -> float:
        """Accuracy or R2 of the float64 ridge."""
        found = self.float64_ridge_test_accuracy if self.test_r2 is None else self.float64_ridge_test_r2
        return float("nan") if found is None else found

    @property
    def equal_to_pooled(self) -> bool:
        """Whether global weights, and personal ones and an evaluation where there are some, are the pooled ones."""
        evaluated = self.evaluation is None or self.evaluation.bitwise_equal_to_pooled
        equal = self.bitwise_equal_to_pooled is not False
        return equal and self.personalised_bitwise_equal_to_pooled is not False and evaluated

    @property
    def but_for_the_seed(self) -> str:
        """The run as text, without its seed: equal for repetitions."""
        return str([(name, getattr(self, name)) for name in Run.model_fields if name != "seed"])

    def option(self, name: str) -> Any:
        """Return the value of an option; None where it has its default."""
        return self.options.get(name)
