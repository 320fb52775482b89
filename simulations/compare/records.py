"""What a comparison keeps of each run, in the words of its JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from simulations.report.document import Count, Natural, NotNegative, Part, Positive, Record, Sha256


class RunRecord(Record, title="run"):
    """One closed form over one mode, partition and cohort."""

    mode: str
    """How the sums were made: plain, masked, ..."""
    learner: str
    """The closed form: afl, fedhip, deepafl, safle."""
    clients: Count
    """Clients of the cohort."""
    partition: str
    """How training rows were dealt: iid, dirichlet:ALPHA or shards:S."""
    survivors: Count
    """Clients whose vectors are in a sum; the fewest of any sum where they differ."""
    sums: Count
    """Sums that the learner asked for."""
    messages_per_client: Count
    """Messages a client sent over all sums; the most of any client that took part."""
    heavy_messages_per_client: Count
    """Those of them that carry a vector of the learner's size."""
    messages_per_sum: tuple[Count, ...] = Field(min_length=1)
    """Messages of a client in each sum, in order; the most of any client whose vector is in it. Fewer from the second
    on where sums carry each other's set-up."""
    test_accuracy: Part
    """Part of the test rows that the federated model classifies correctly."""
    weights_sha256: Sha256
    """SHA-256 of everything that the model learned."""
    bitwise_equal_to_pooled: bool
    """Whether these bytes are those of the same closed form solved on the survivors' pooled rows."""
    max_abs_weight_deviation: NotNegative | None
    """Largest absolute difference of a weight from the pooled model's; 0 when the bytes are equal, null when no number
    says it (weights of another number, or NaN)."""
    float64_ridge_test_accuracy: Part
    """Accuracy of an unquantised float64 linear ridge on the same pooled rows (those of the first sum)."""
    float64_ridge_max_abs_weight_deviation: NotNegative | None
    """Largest absolute difference of a weight from that ridge's: what fixed-point rows cost. null for learners that are
    no linear map of the features."""
    float64_gram_sum_max_abs_weight_deviation: NotNegative
    """Largest absolute difference of a weight from a float64 ridge on the pooled rows' Gram matrix when the clients of
    the first sum send float64 Gram matrices, which are added and solved; 0 where products of rows are exact in
    float64."""
    float64_solved_weights_max_abs_weight_deviation: NotNegative
    """The same when they send solved weights with gamma 1 on the diagonal, as AFL's authors do."""
    local_test_accuracy: Part | None
    """Accuracy of the global model on a fifth of each client's own rows that it kept for testing; mean over clients
    that took part and hold such rows. null for learners without personal models."""
    personalised_test_accuracy: Mapping[str, Part] | None
    """The same for each client's personal model, by alpha as text. null for learners without personal models."""
    personalised_bitwise_equal_to_pooled: bool | None
    """Whether the personal weights of every client that took part, for every alpha, have the bytes of those that follow
    from the survivors' pooled total. null for learners without personal models."""
    bytes_up_per_client: Count
    """Bytes a client sent over all sums, headers included; the most of any client that took part."""
    bytes_down_per_client: Natural
    """Bytes a client received as messages of its sums; the most of any client that took part. The model that clients
    receive between sums and at the end is not in it: it is the same in every mode."""
    client_seconds: NotNegative
    """Time a client computed, its statistics included, over all sums; mean over clients that took part."""
    client_statistics_seconds: NotNegative
    """The part of it that is the learner's and not the mode's; mean over clients that took part."""
    server_seconds: NotNegative
    """Time of the server's sessions and of the solves."""
    helpers: Natural
    """Parties beside clients and server that the mode needs."""
    helper_bytes_up: Natural
    """Bytes a helper sent; the most of any, 0 without helpers."""
    helper_bytes_down: Natural
    """Bytes a helper received; the most of any, 0 without helpers."""
    helper_seconds: NotNegative
    """Time a helper computed; the most of any, 0 without helpers."""
    wall_seconds: NotNegative
    """Time of the whole run in one process, without its reference."""
    peak_rss_bytes: Count
    """Largest resident memory of the process during the run (where the system cannot start anew, up to its end)."""

    @property
    def equal_to_pooled(self) -> bool:
        """Whether the global weights, and the personal ones where there are any, have their pooled bytes."""
        return self.bitwise_equal_to_pooled and self.personalised_bitwise_equal_to_pooled is not False


class BaselineRecord(Record, title="baseline"):
    """One gradient baseline on one partition and cohort; sums in the clear, and no bitwise law."""

    mode: Literal["baseline"] = "baseline"
    """Marks it as no privacy mode and no closed form."""
    learner: str
    """The gradient method: fedavg or fedprox."""
    clients: Count
    """Clients of the cohort."""
    partition: str
    """How training rows were dealt: iid, dirichlet:ALPHA or shards:S."""
    survivors: Count
    """Clients that took part in every round: those whose vectors are in a closed form's first sum."""
    rounds: Count
    """Rounds of communication."""
    local_epochs: Count
    """Passes of a client over its own rows in a round."""
    batch_size: Count
    """Rows in a step."""
    learning_rate: Positive
    """Step length of SGD."""
    mu: NotNegative
    """FedProx's pull toward the common head; 0 for FedAvg."""
    test_accuracy: Part
    """Part of the test rows that the last head classifies correctly."""
    best_test_accuracy: Part
    """The same for the best round, which the test rows themselves chose."""
    bytes_up_per_client: Count
    """Bytes of the heads that a client sent, as float32."""
    bytes_down_per_client: Count
    """Bytes of the heads that it received."""
    wall_seconds: NotNegative
    """Time of training and testing in one process."""


class PrivateRecord(Record, title="private_record"):
    """One kind of trust at one epsilon, over all repetitions."""

    trust: Literal["distributed", "central", "local", "non-private"]
    """Who adds noise: every client, the server, every upload for itself, nobody."""
    target_epsilon: NotNegative | None
    """The budget that was asked for; null without noise, here and below."""
    epsilon: NotNegative | None
    """Epsilon that the integer noise really gives."""
    delta: NotNegative | None
    """Its delta."""
    rho: NotNegative | None
    """The same in zero-concentrated differential privacy."""
    epsilon_tight: NotNegative | None
    """The smaller epsilon of an exact account of the noise."""
    sigma_gram: NotNegative
    """Noise scale of the Gram matrix, in units of the rows' norm squared."""
    sigma_cross: NotNegative
    """Noise scale of the cross-correlation."""
    releases: Count
    """Totals that one run releases."""
    unit: Literal["record", "client"]
    """Who is protected."""
    adjacency: str
    """What a neighbouring data set is."""
    clients: Count
    """Clients of the cohort."""
    survivors: Count
    """Clients whose vectors are in a total."""
    promised_survivors: Count
    """Fewest clients of any total that is released."""
    colluders: Natural
    """Clients whose noise counts for nothing."""
    layers: Natural | None
    """T of a deep learner; null for the linear one."""
    accuracy_mean: Part
    """Part of the test rows that are classified correctly; mean over repetitions."""
    accuracy_spread: NotNegative
    """Standard deviation over repetitions."""
    accuracies: tuple[Part, ...] = Field(min_length=1)
    """The accuracy of each repetition."""
    clipped: Natural
    """Rows, and for units of clients contributions, that were shortened, over all repetitions."""
    second_opinions: Mapping[str, NotNegative]
    """Epsilon by other accountants' names; empty where they are not installed."""
