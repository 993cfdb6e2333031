"""Least squares, small and dense, by NumPy's linear algebra alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Matrix = npt.NDArray[np.float64]

TOLERANCE = 1e-9
"""Of a column's length: what is left of a column that others explain."""

MAX_DAMPING, MAX_RESTARTS = 1e6, 20
NUDGE, LOOKS = 1e-6, (0.3, 0.03, 0.003)
"""Of logarithms: the difference that derivatives are taken from, and how far to look for a way on."""


def non_negative(columns: Matrix, target: Matrix, free: list[bool] | None = None) -> Matrix:
    """The x that makes ``columns @ x`` nearest to ``target``, with x ≥ 0 but where ``free``.

    Lawson and Hanson's active set: variables enter one by one where the residual falls fastest, and leave
    where the fit would have them negative. Columns are scaled to length 1 first. Source: Lawson, Hanson,
    *Solving Least Squares Problems*, 1974, chapter 23.
    """
    lengths = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(lengths > 0, lengths, 1.0)
    bound = np.array([not each for each in free]) if free is not None else np.ones(columns.shape[1], dtype=bool)
    used = ~bound & (lengths > 0)
    x = _least_squares(scaled, target, used)
    tolerance = TOLERANCE * max(float(np.linalg.norm(target)), 1e-300)
    for _ in range(3 * columns.shape[1]):
        slope = scaled.T @ (target - scaled @ x)
        slope[used | (lengths == 0)] = -np.inf
        if slope.size == 0 or slope.max() <= tolerance:
            break
        used[int(slope.argmax())] = True
        x, used = _back_inside(scaled, target, x, used, bound)
    result: Matrix = x / np.where(lengths > 0, lengths, 1.0)
    return result


def _back_inside(
    columns: Matrix, target: Matrix, x: Matrix, used: npt.NDArray[np.bool_], bound: npt.NDArray[np.bool_]
) -> tuple[Matrix, npt.NDArray[np.bool_]]:
    """From ``x`` towards the least squares of the variables in use, as far as none gets negative; those that
    stop it leave."""
    while True:
        goal = _least_squares(columns, target, used)
        negative = used & bound & (goal <= 0)
        if not negative.any():
            return goal, used
        # One that is at 0 and would fall has nowhere to go: the step is 0, and it leaves at once.
        steps = x[negative] / np.maximum(x[negative] - goal[negative], 1e-300)
        x = x + steps.min() * (goal - x)
        leaving = negative & (x <= TOLERANCE * np.abs(x).max(initial=0.0))
        if not leaving.any():
            leaving[np.flatnonzero(negative)[int(steps.argmin())]] = True
        used = used & ~leaving
        x = np.where(used, x, 0.0)


def _least_squares(columns: Matrix, target: Matrix, used: npt.NDArray[np.bool_]) -> Matrix:
    x = np.zeros(columns.shape[1])
    if used.any():
        x[used] = np.linalg.lstsq(columns[:, used], target, rcond=None)[0]
    return x


def explained(columns: Matrix) -> int | None:
    """The first column that those before it add up to; None if each says something of its own."""
    basis = np.zeros((columns.shape[0], 0))
    for at in range(columns.shape[1]):
        column = columns[:, at] / max(float(np.linalg.norm(columns[:, at])), 1e-300)
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)
        length = float(np.linalg.norm(rest))
        if length <= TOLERANCE:
            return at
        basis = np.column_stack([basis, rest / length])
    return None


def descend(errors: Callable[[Matrix], Matrix], start: Matrix) -> Matrix:
    """The positive x near ``start`` whose ``errors`` have the least sum of squares.

    Levenberg and Marquardt's method on the logarithms of x, with differences for derivatives. Where the
    errors have kinks it can get stuck: then a step along one axis leads on, while there is one. Source:
    Moré, *The Levenberg-Marquardt algorithm*, 1978.
    """

    def at(logarithms: Matrix) -> Matrix:
        return errors(np.exp(logarithms))

    x = np.log(start)
    for _ in range(MAX_RESTARTS):
        x = _marquardt(at, x)
        best = float(np.sum(at(x) ** 2))
        around = [x + length * unit for length in LOOKS for unit in (*np.eye(x.size), *-np.eye(x.size))]
        sums = [float(np.sum(at(each) ** 2)) for each in around]
        if min(sums) >= best * (1 - 1e-6):
            break
        x = around[int(np.argmin(sums))]
    found: Matrix = np.exp(x)
    return found


def _marquardt(errors: Callable[[Matrix], Matrix], x: Matrix) -> Matrix:
    best = errors(x)
    damping = 1e-3
    while damping < MAX_DAMPING:
        slopes = np.column_stack([(errors(x + NUDGE * unit) - best) / NUDGE for unit in np.eye(x.size)])
        normal = slopes.T @ slopes
        scale = np.diag(np.maximum(np.diag(normal), 1e-12))
        step = np.clip(-np.linalg.solve(normal + damping * scale, slopes.T @ best), -2, 2)
        tried = errors(x + step)
        before, after = float(best @ best), float(tried @ tried)
        if after >= before:
            damping *= 10
            continue
        x, best, damping = x + step, tried, max(damping / 10, 1e-9)
        if before - after <= 1e-12 * before:
            break
    return x
