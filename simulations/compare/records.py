"""What a comparison keeps of each run, under the names of its JSON report (docs/reference/compare-json.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One closed form over one mode, partition and cohort."""

    mode: str
    learner: str
    clients: int
    partition: str
    survivors: int
    sums: int
    messages_per_client: int
    heavy_messages_per_client: int
    messages_per_sum: tuple[int, ...]
    test_accuracy: float
    weights_sha256: str
    bitwise_equal_to_pooled: bool
    max_abs_weight_deviation: float | None
    float64_ridge_test_accuracy: float
    float64_ridge_max_abs_weight_deviation: float | None
    float64_gram_sum_max_abs_weight_deviation: float
    float64_solved_weights_max_abs_weight_deviation: float
    local_test_accuracy: float | None
    personalised_test_accuracy: Mapping[str, float] | None
    personalised_bitwise_equal_to_pooled: bool | None
    bytes_up_per_client: int
    bytes_down_per_client: int
    client_seconds: float
    client_statistics_seconds: float
    server_seconds: float
    helpers: int
    helper_bytes_up: int
    helper_bytes_down: int
    helper_seconds: float
    wall_seconds: float
    peak_rss_bytes: int

    @property
    def equal_to_pooled(self) -> bool:
        """Whether the global weights, and the personal ones where there are any, have their pooled bytes."""
        return self.bitwise_equal_to_pooled and self.personalised_bitwise_equal_to_pooled is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRecord:
    """One gradient baseline on one partition and cohort; sums in the clear, and no bitwise law."""

    mode: str
    learner: str
    clients: int
    partition: str
    survivors: int
    rounds: int
    local_epochs: int
    batch_size: int
    learning_rate: float
    mu: float
    test_accuracy: float
    best_test_accuracy: float
    bytes_up_per_client: int
    bytes_down_per_client: int
    wall_seconds: float
