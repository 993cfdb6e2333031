"""The contract of executors finds each kind of mistake."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvbench.sweeps.cell import run_cell
from kvbench.sweeps.executor import CellOutcome, CellTask, Executor
from kvbench.testing import ExecutorContract
from kvbench.testing.executors import small_cells


class InTurn(Executor):
    """One after another, the last one first."""

    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        for task in reversed(tasks):
            yield run_cell(task)


class Forgets(InTurn):
    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        return super().run(tasks[1:])


class Repeats(InTurn):
    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        return chain(super().run(tasks), super().run(tasks[:1]))


class Raises(InTurn):
    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        for outcome in super().run(tasks):
            if outcome.error is not None:
                raise RuntimeError(outcome.error)
            yield outcome


class SaysTooMuch(InTurn):
    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        for outcome in super().run(tasks):
            yield outcome if outcome.error is None else msgspec.structs.replace(outcome, error=f"{outcome.error}\n")


class LeavesAProcess(InTurn):
    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        yield from super().run(tasks)
        helper.kill()
        helper.wait()


class Resumes(InTurn):
    """Goes on where it was left."""

    def __init__(self) -> None:
        self.rest: list[CellTask] = []

    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        self.rest += tasks
        while self.rest:
            yield run_cell(self.rest.pop())


class Mistaken(ExecutorContract):
    """The contract over one class, whose tests are called by hand."""

    def __init__(self, executor: type[Executor]) -> None:
        self.executor = executor

    def make(self) -> Any:
        return self.executor()


class TestInTurn(ExecutorContract):
    """A right executor passes."""

    def make(self) -> Any:
        return InTurn()


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sequence[CellTask]:
    monkeypatch.chdir(tmp_path)
    return small_cells(tmp_path)


@pytest.mark.parametrize("executor", [Forgets, Repeats, SaysTooMuch])
def test_outcomes_that_are_not_those_of_the_cells_fail(cells: Sequence[CellTask], executor: type[Executor]) -> None:
    with pytest.raises(AssertionError):
        Mistaken(executor).test_outcomes_are_those_of_this_process(cells)


def test_a_failure_that_is_raised_fails(cells: Sequence[CellTask]) -> None:
    with pytest.raises(RuntimeError, match="absent"):
        Mistaken(Raises).test_a_failure_is_an_outcome_that_says_why(cells)


def test_a_process_that_is_left_fails(cells: Sequence[CellTask], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given: started.append(popen(*given)) or started[-1])
    monkeypatch.setattr("kvbench.testing.executors.PATIENCE_S", 0.2)
    try:
        with pytest.raises(AssertionError, match="processes that are left"):
            Mistaken(LeavesAProcess).test_an_executor_runs_again_after_it_was_left_early(cells)
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_what_was_left_must_not_come_back(cells: Sequence[CellTask]) -> None:
    with pytest.raises(AssertionError):
        Mistaken(Resumes).test_an_executor_runs_again_after_it_was_left_early(cells)
