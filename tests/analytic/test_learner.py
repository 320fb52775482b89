"""A client's rows, pooling, and the context that a session is bound to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.learner_driver import train

from analytic.afl import AFL
from analytic.errors import InvalidRowsError, SpecificationError
from analytic.learner import ClientRows, canonical_context, fit_pooled
from analytic.row_format import RowFormat

FORMAT = RowFormat.parse("Q5.11")


def learner_of() -> AFL:
    return AFL(n_features=2, n_targets=2, feature_format=FORMAT, max_rows=100)


def some_clients(n: int, seed: int = 0) -> list[ClientRows]:
    rng = np.random.default_rng(seed)
    return [ClientRows(rng.uniform(-9, 9, (5, 2)), rng.integers(0, 2, 5)) for _ in range(n)]


class TestClientRows:
    @pytest.mark.parametrize(
        ("features", "targets"),
        [(np.zeros(3), np.zeros(3)), (np.zeros((3, 2)), np.zeros(2)), (np.zeros((3, 2, 1)), np.zeros(3))],
    )
    def test_refuses_shapes_that_disagree(self, features: NDArray[Any], targets: NDArray[Any]) -> None:
        with pytest.raises(InvalidRowsError, match="matrix with one target a row"):
            ClientRows(features, targets)

    def test_takes_arrays_and_nothing_else(self) -> None:
        with pytest.raises(InvalidRowsError, match=r"numpy arrays, not list and ndarray.*asarray"):
            ClientRows([[1.0]], np.zeros(1))  # type: ignore[arg-type]

    def test_refuses_masks(self) -> None:
        """The range check would pass over what a mask hides, and the NaN beneath become -2^31."""
        hidden = np.ma.masked_array([[1.0], [np.nan]], mask=[[False], [True]])
        for features, targets in ((hidden, np.zeros(2)), (np.zeros((2, 1)), hidden), (hidden[:1], np.zeros(1))):
            with pytest.raises(InvalidRowsError, match="a masked one of shape"):
                ClientRows(features, targets)

    def test_pools_in_order(self) -> None:
        clients = some_clients(3)
        pooled = ClientRows.pool(clients)
        assert len(pooled) == 15
        assert pooled.features.tobytes() == b"".join(rows.features.tobytes() for rows in clients)
        assert pooled.targets.tobytes() == b"".join(rows.targets.tobytes() for rows in clients)

    @pytest.mark.parametrize(
        "nothing", [np.empty(0), np.empty((0, 2)), np.empty(0, dtype=np.uint64)], ids=["float", "matrix", "uint64"]
    )
    def test_a_client_without_rows_changes_nothing(self, nothing: NDArray[Any]) -> None:
        clients = some_clients(2)
        empty = ClientRows(np.empty((0, 2)), nothing)
        pooled, without = ClientRows.pool([clients[0], empty, clients[1]]), ClientRows.pool(clients)
        for own, other in ((pooled.features, without.features), (pooled.targets, without.targets)):
            assert (own.dtype, own.tobytes()) == (other.dtype, other.tobytes())
        assert len(ClientRows.pool([empty, empty])) == 0

    def test_labels_of_several_integer_types_pool_as_integers(self) -> None:
        parts = [
            ClientRows(np.ones((1, 2)), np.array([label], dtype=kind))
            for label, kind in ((0, np.uint64), (1, np.int64), (1, np.bool_))
        ]
        pooled = ClientRows.pool(parts)
        assert (pooled.targets.dtype, pooled.targets.tolist()) == (np.int64, [0, 1, 1])
        federated = train(learner_of(), parts)
        assert federated.weights.tobytes() == fit_pooled(learner_of(), pooled).weights.tobytes()

    def test_batches_are_the_rows_in_their_order(self) -> None:
        rows = some_clients(1)[0]
        weights = np.arange(len(rows))
        parts = [slice(0, 2), slice(2, 2), slice(2, None)]
        plain = ClientRows.from_batches((rows.features[part], rows.targets[part]) for part in parts)
        assert plain.features.tobytes() == rows.features.tobytes()
        assert (plain.targets.tobytes(), plain.weights) == (rows.targets.tobytes(), None)
        lists = ((rows.features[part].tolist(), rows.targets[part].tolist(), weights[part]) for part in parts[::2])
        weighed = ClientRows.from_batches(lists)
        assert weighed.weights is not None
        assert (weighed.weights.tolist(), weighed.targets.tolist()) == (weights.tolist(), rows.targets.tolist())
        with pytest.raises(InvalidRowsError, match="at least one batch"):
            ClientRows.from_batches(iter([]))

    def test_pooling_nobody_is_an_error(self) -> None:
        with pytest.raises(InvalidRowsError, match="at least one client"):
            ClientRows.pool([])

    def test_what_a_client_remembers_is_its_own_and_unprinted(self) -> None:
        first, second = some_clients(2)
        first.memory["layer"] = "private"
        assert second.memory == {}
        assert "private" not in repr(first)


@dataclass(frozen=True)
class Inner:
    low: float = 0.0


@dataclass(frozen=True)
class Toy:
    value: Any
    inner: Inner = Inner()

    name = "toy"


plain_values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


class TestCanonicalContext:
    def test_is_readable_and_stable(self) -> None:
        context = canonical_context(Toy(FORMAT), b"xy")
        head = b'{"inner": {"low": 0}, "name": "toy", "value": "Q5.11", "version": 2}'
        assert context == len(head).to_bytes(8, "big") + head + (2).to_bytes(8, "big") + b"xy"

    @given(plain_values, plain_values)
    def test_differs_where_values_differ(self, one: Any, other: Any) -> None:
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (one, other))
        same = one == other if numbers else (type(one), one) == (type(other), other)
        assert (canonical_context(Toy(one)) == canonical_context(Toy(other))) == same

    @given(st.lists(st.binary(max_size=4), max_size=3), st.lists(st.binary(max_size=4), max_size=3))
    def test_parts_do_not_run_together(self, one: list[bytes], other: list[bytes]) -> None:
        assert (canonical_context(Toy(1), *one) == canonical_context(Toy(1), *other)) == (one == other)

    def test_numbers_of_any_type_print_alike(self) -> None:
        forms = (2, 2.0, np.int8(2), np.float32(2))
        assert len({canonical_context(Toy(value)) for value in forms}) == 1
        assert canonical_context(Toy((1, (2.5, "a")))) == canonical_context(Toy([1.0, [2.5, "a"]]))
        assert canonical_context(Toy(0.0)) == canonical_context(Toy(-0.0))
        assert canonical_context(Toy(2**2000)) != canonical_context(Toy(2**2000 + 1))
        assert canonical_context(Toy(True)) != canonical_context(Toy(1))

    @pytest.mark.parametrize("value", [np.zeros(2), object(), {1: 2}, float("nan"), float("inf")])
    def test_refuses_what_has_no_canonical_form(self, value: Any) -> None:
        with pytest.raises(SpecificationError, match="canonical"):
            canonical_context(Toy(value))
