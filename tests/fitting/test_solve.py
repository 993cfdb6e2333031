"""Least squares against what they must satisfy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.fitting.solve import descend, explained, non_negative


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 12), columns=st.integers(1, 6))
def test_non_negative_least_squares_meet_the_conditions_of_a_minimum(seed: int, rows: int, columns: int) -> None:
    """Karush, Kuhn and Tucker: x ≥ 0, nothing to gain from growing any x, nor from shrinking one above 0."""
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(rows, columns)) * 10.0 ** random.integers(-6, 7, columns)
    target = random.normal(size=rows)
    x = non_negative(matrix, target)
    slope = (matrix / np.linalg.norm(matrix, axis=0)).T @ (target - matrix @ x)
    assert (x >= 0).all()
    assert slope.max() <= 1e-7
    assert np.abs(slope[x > 0]).max(initial=0) <= 1e-7


def test_a_free_variable_may_be_negative() -> None:
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    target = np.array([5.0, 4.0, 3.0])
    assert non_negative(matrix, target, [False, True]) == pytest.approx([5, -1])
    assert non_negative(matrix, target) == pytest.approx([4, 0])


def test_a_column_that_others_explain_is_found() -> None:
    one, size = np.ones(4), np.array([1.0, 2.0, 3.0, 4.0])
    assert explained(np.column_stack([one, size, 2 * one + 3 * size])) == 2
    assert explained(np.column_stack([one, size, size**2])) is None


def test_descent_gets_past_kinks() -> None:
    """The larger one of two lines, with factors to find for both and for what is shared."""
    work = np.array([1.0, 2.0, 5.0, 10.0, 20.0, 50.0])
    moved = np.array([30.0, 20.0, 10.0, 5.0, 2.0, 1.0])
    truth = np.maximum(work / 0.4, moved / 0.8)

    def errors(x: np.ndarray) -> np.ndarray:
        return np.maximum(work / x[0], moved / x[1]) / truth - 1

    assert descend(errors, np.array([0.05, 3.0])) == pytest.approx([0.4, 0.8], rel=1e-4)
