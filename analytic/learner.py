"""The interface: a learner as a dialogue of sums, and the pooled fit that every federation must equal."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, SpecificationError
from analytic.model_arrays import Parts
from analytic.row_format import FloatMatrix, RowFormat, refuse_mask
from analytic.shape_repr import shape_html, shape_repr
from analytic.statistics import IntVector, Statistics

M = TypeVar("M")
S = TypeVar("S")


@dataclass(slots=True, eq=False)
class ClientRows:
    """One client's private rows, and what its learner keeps from one sum to the next.

    Args:
        features: shape (n, d), any real type of at most 64 bits; n may be 0.
        targets: integer class labels of shape (n,), or real targets of shape (n, c).
        weights: how often each row counts, whole numbers of shape (n,) of at least 0, for a ``Pipeline`` with weights;
            None where every row counts once.
        memory: the learner's own; a client holds it between sums and never sends it.
    """

    features: NDArray[Any]
    targets: NDArray[Any]
    weights: NDArray[Any] | None = None
    memory: dict[str, Any] = field(default_factory=dict, repr=False)

    __repr__ = shape_repr
    _repr_html_ = shape_html

    def __post_init__(self) -> None:
        if not (isinstance(self.features, np.ndarray) and isinstance(self.targets, np.ndarray)):
            raise InvalidRowsError(
                f"features and targets are numpy arrays, not {type(self.features).__name__} and "
                f"{type(self.targets).__name__}; convert them with numpy.asarray"
            )
        refuse_mask(self.features)
        refuse_mask(self.targets)
        if self.features.ndim != 2 or len(self.features) != len(self.targets):
            raise InvalidRowsError(
                f"features must be a matrix with one target a row; their shape is {self.features.shape}, "
                f"that of the targets {self.targets.shape}"
            )
        if self.weights is not None:
            self.weights = _whole_weights(self.weights, len(self.features))

    @property
    def unweighted(self) -> ClientRows:
        """Return these rows without weights, each counting once."""
        return ClientRows(self.features, self.targets)

    def taken(self, places: NDArray[Any]) -> ClientRows:
        """The rows at these places, or where these are true, with their weights."""
        weights = None if self.weights is None else self.weights[places]
        return ClientRows(self.features[places], self.targets[places], weights)

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def from_batches(cls, batches: Iterable[Sequence[Any]]) -> ClientRows:
        """Return the rows of batches (X, y), or (X, y, weights), as data loaders and readers of large files yield them.

        Raises:
            InvalidRowsError: there is no batch, or one is no rows.

        Example:
            >>> len(ClientRows.from_batches((np.ones((2, 3)), [0, 1]) for _ in range(4)))
            8
        """
        parts = [
            cls(np.asarray(x), np.asarray(y), np.asarray(weights[0]) if weights else None) for x, y, *weights in batches
        ]
        if not parts:
            raise InvalidRowsError("rows need at least one batch (X, y), and there was none; X may have no rows")
        kinds = {"i" if own.targets.dtype.kind in "biu" else own.targets.dtype.kind for own in parts}
        if len(kinds) > 1:
            types = sorted({str(own.targets.dtype) for own in parts})
            raise InvalidRowsError(
                f"batches need targets of one kind, and they are {', '.join(types)}: give labels as whole numbers and "
                "real targets as floats"
            )
        return cls.pool(parts)

    @staticmethod
    def pool(parts: list[ClientRows]) -> ClientRows:
        """All rows of several clients in one place, which is what a federation avoids.

        Arrays of clients without rows are left out, since their types and shapes say nothing. Class labels of several
        integer types become int64: numpy would join int64 and uint64 to floats.
        """
        if not parts:
            raise InvalidRowsError("pooling needs at least one client, even one without rows")
        held = [part for part in parts if len(part)] or parts[:1]
        targets = [part.targets for part in held]
        labels = all(own.ndim == 1 and own.dtype.kind in "biu" for own in targets)
        if labels and len({own.dtype for own in targets}) > 1:
            targets = [own.astype(np.int64) for own in targets]
        weights = None
        if any(part.weights is not None for part in held):
            ones = (np.ones(len(part), dtype=np.int64) if part.weights is None else part.weights for part in held)
            weights = np.concatenate(list(ones))
        return ClientRows(np.concatenate([part.features for part in held]), np.concatenate(targets), weights)


def _whole_weights(weights: NDArray[Any], n_rows: int) -> IntVector:
    """Weights as int64, if each row has one that is a whole number >= 0."""
    refuse_mask(weights)
    if weights.shape != (n_rows,) or weights.dtype.kind not in "biuf":
        raise InvalidRowsError(
            f"weights are numbers, one for each of {n_rows} rows, not {weights.dtype} of {weights.shape}"
        )
    whole = (weights >= 0) & (weights < 2**62) & (weights == np.floor(weights))
    if not whole.all():
        raise InvalidRowsError(
            f"weights are whole numbers of at least 0, and {int(np.count_nonzero(~whole))} of {n_rows} are not: count "
            "them in a unit small enough, such as 1/1024, which scales the ridge as well"
        )
    return weights.astype(np.int64)


def refuse_weights(rows: ClientRows) -> None:
    """Refuse rows with weights where every row counts once.

    Raises:
        InvalidRowsError: they have some.
    """
    if rows.weights is not None:
        raise InvalidRowsError(
            "these rows have weights, and this learner counts every row once: agree on Pipeline(head=..., "
            "weights=Weights(max_weight=...)) of it (in apps and on the command line the option max_weight), or leave "
            "weights out"
        )


class SumSpec(Protocol[S]):
    """The public shape of one sum: its layout, and how a contribution becomes a vector and back."""

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment."""
        ...

    @property
    def max_rows(self) -> int:
        """Largest number of rows of all clients together, of weighted rows each of the largest weight.

        Clients that hold no more between them never add up to a total beyond a bound.
        """
        ...

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most."""
        ...

    def to_vector(self, statistics: S) -> IntVector:
        """One contribution as an int64 vector."""
        ...

    def from_vector(self, vector: IntVector) -> S:
        """The contribution, or the total, that a vector stands for."""
        ...

    def check_total(self, total: S, survivors: int) -> None:
        """Refuse an exact total that no rows of so many clients add up to, with an ``ImpossibleTotalError``."""
        ...


class AnalyticLearner(Protocol[M]):
    """A closed form as a dialogue: it asks for sums until its model is complete. It never sees a transport.

    A model is immutable and public: every party may hold it. ``client_statistics`` runs at the client, the
    other methods anywhere.

    A learner may have more, which the slots of a ``Pipeline`` ask for. All need ``n_targets``, ``target_format`` and
    ``max_rows``; weights ``over(n)``, the learner whose penalties are n times as large; a scaler ``widened(bits)``, the
    one of columns up to 2^bits in place of 1, without which columns stay below one. ``one_sum`` says that rows are
    needed once only, ``personal_models`` makes models of a client's own, ``coarse_columns`` names columns that a format
    hardly holds.
    """

    @property
    def name(self) -> str:
        """The learner's name on the command line and in reports."""
        ...

    @property
    def n_features(self) -> int:
        """Columns of the rows that a client holds."""
        ...

    def init(self) -> M:
        """The model before any sum."""
        ...

    def next_sum(self, model: M) -> SumSpec[Any] | None:
        """The sum that the model needs next; None when it is complete."""
        ...

    def client_statistics(self, model: M, rows: ClientRows) -> Any:
        """One client's contribution to that sum. Weights of rows it heeds, or calls ``refuse_weights``."""
        ...

    def update(self, model: M, total: Any, survivors: int) -> M:
        """The model after the total of ``survivors`` contributions arrived."""
        ...

    def exact_total(
        self, model: M, total: Any, survivors: int
    ) -> Statistics | tuple[Statistics, ...] | IntVector | None:
        """Return the exact statistics of raw features in a total of this model's next sum, which release gates judge.

        Several where the sum is of parts of the rows, each of which is a total of its own; a vector where it is of
        counts of rows. None where the total is noisy, or of other features, whose rank says less.
        """
        ...

    def decision_function(self, model: M, features: NDArray[Any]) -> FloatMatrix:
        """Scores of a complete model, shape (n, c); the class is the largest one's index."""
        ...

    def take_apart(self, model: M) -> Parts:
        """The model's arrays by name, with what is known of those that were solved for."""
        ...

    def weights_bytes(self, model: M) -> bytes:
        """Everything that the model learned as bytes, to compare and to hash."""
        ...

    def context_bytes(self, model: M) -> bytes:
        """The configuration and everything of the model that a client received, as canonical public bytes.

        A secure session binds its keys to them: parties that disagree about a seed, a format or the model get
        noise instead of a sum. Equal for equal public state, different for different; ``canonical_context`` makes it.
        """
        ...


OPTIONAL: Mapping[str, bool] = {"optional": True}
"""The metadata of a field that is left out of a configuration's bytes while it is None, as if nobody knew of it."""

STORED_WITHOUT = "stored without"
"""The key, in a field's metadata, of the value that a model which was stored before there was such a field has."""

RECEIVED: Mapping[str, bool] = {"received": True}
"""The metadata of a field that is no configuration: its bytes are among those that a client received."""


def stated_fields(learner: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, without those that are ``RECEIVED``, or ``OPTIONAL`` and None."""
    values = {f.name: (f, getattr(learner, f.name)) for f in fields(learner) if "received" not in f.metadata}
    return {name: value for name, (f, value) in values.items() if value is not None or "optional" not in f.metadata}


def canonical_context(learner: Any, *received: bytes) -> bytes:
    """A learner's name and fields, then what a client received, as bytes that no two public states share.

    Learners in it have their names too. Without ``received`` it is the configuration, which says what is computed.

    The form is one line of JSON with sorted keys (a whole number prints the same as int and float, a row format as
    ``Q5.11``) and then each part of ``received`` after its length in 8 bytes, big-endian.

    Args:
        learner: a dataclass with a ``name``, whose fields are numbers, strings, None, row formats, dataclasses or
            tuples of these.
        received: the model's parts in a fixed order.
    """
    head = json.dumps({"version": 2, **_canonical(learner)}, sort_keys=True, allow_nan=False)
    parts = [head.encode(), *received]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _canonical(value: Any) -> Any:
    if isinstance(value, RowFormat):
        return str(value)
    if is_dataclass(value):
        named = {"name": value.name} if hasattr(value, "name") else {}
        return named | {name: _canonical(stated) for name, stated in stated_fields(value).items()}
    if isinstance(value, (tuple, list)):
        return [_canonical(item) for item in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        return int(value) if value == int(value) else float(value)
    raise SpecificationError(
        f"no canonical form for this {type(value).__name__}: describe it by finite numbers and strings"
    )


def fit_in_the_clear(
    learner: AnalyticLearner[M], clients: Sequence[ClientRows], took_part: Sequence[Collection[int]] | None = None
) -> M:
    """Return the model from sums in the clear: the oracle that every federation must equal, bit for bit.

    It stands beside ``federation.Federation``, which leads all other runs, since an oracle must not be made by what it
    is compared with.

    Args:
        learner: the closed form.
        clients: the rows of each.
        took_part: for each sum, the indices of the clients in it; None takes all of them in every sum.
    """
    model, number = learner.init(), 0
    while (spec := learner.next_sum(model)) is not None:
        present = range(len(clients)) if took_part is None else took_part[number]
        total = np.zeros(sum(size for _, size, _ in spec.segments), dtype=np.int64)
        for index in present:
            total += spec.to_vector(learner.client_statistics(model, clients[index]))
        model, number = learner.update(model, spec.from_vector(total), len(present)), number + 1
    return model


def fit_pooled(learner: AnalyticLearner[M], rows: ClientRows) -> M:
    """Return the model of all rows in one place."""
    return fit_in_the_clear(learner, [rows])
