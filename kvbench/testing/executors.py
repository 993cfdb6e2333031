"""The contract of executors: one outcome for each cell, the same as anywhere, and nothing left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pytest

from kvbench.specs import ExecutorSpec, Spec
from kvbench.sweeps.cell import run_cell
from kvbench.sweeps.executor import CellOutcome, CellTask, Executor
from kvbench.testing.parts import PartContract
from kvbench.testing.traces import small_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CELLS = 12
PATIENCE_S = 20.0
"""How long processes may take to end."""


class ExecutorContract(PartContract):
    """Inherit, and set ``spec_name``; or override ``make``."""

    kind: ClassVar[type[Spec]] = ExecutorSpec

    def make(self) -> Executor:
        """A fresh executor."""
        executor = self.build()
        assert isinstance(executor, Executor), f"the factory made a {type(executor).__name__}"
        return executor

    @pytest.fixture
    def cells(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sequence[CellTask]:
        """The tasks that the executor is tested with; their files are found from the current folder."""
        monkeypatch.chdir(tmp_path)
        return small_cells(tmp_path)

    def test_outcomes_are_those_of_this_process(self, cells: Sequence[CellTask]) -> None:
        """Each task has exactly one outcome, a failure too, and only the time that it took is its own."""
        assert _in_order(self.make().run(cells)) == _in_order(map(run_cell, cells))

    def test_a_failure_is_an_outcome_that_says_why(self, cells: Sequence[CellTask]) -> None:
        outcomes = list(self.make().run(cells[1:3]))
        assert {(outcome.number, outcome.status) for outcome in outcomes} == {(1, "failed"), (2, "failed")}
        assert all(outcome.error and "absent" in outcome.error and "\n" not in outcome.error for outcome in outcomes)

    def test_no_cells_have_no_outcomes(self) -> None:
        assert list(self.make().run([])) == []

    def test_an_executor_runs_again_after_it_was_left_early(self, cells: Sequence[CellTask]) -> None:
        """Closing the iterator ends the processes that it started, and what it had begun comes back no more."""
        executor = self.make()
        assert len(list(executor.run(cells[:1]))) == 1
        before = _children()
        begun = iter(executor.run(cells))
        next(begun)
        begun.close()  # type: ignore[attr-defined]
        assert _ends(before), f"processes that are left: {sorted(_children() - before)}"
        assert [outcome.number for outcome in _in_order(executor.run(cells[3:6]))] == [3, 4, 5]


def small_cells(folder: Path) -> list[CellTask]:
    """Capacities of a small trace in ``folder``, named by paths from there, and two cells that fail, the second and
    the third: one names a trace that is not there, one a policy."""
    table = small_trace()
    with pa.OSFile(str(folder / "small.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    settings = [{"trace": "small.arrow", "capacity": str(4 + at)} for at in range(CELLS)]
    settings[1] = {"trace": "absent.arrow", "capacity": "4"}
    settings[2] = {"trace": "small.arrow", "capacity": "4", "policy": "absent"}
    return [CellTask(number=at, settings=each, autoload=False) for at, each in enumerate(settings)]


def _in_order(outcomes: Iterable[CellOutcome]) -> list[CellOutcome]:
    return sorted(outcomes, key=lambda outcome: outcome.number)


def _children() -> set[int]:
    """The processes that this one started and that run; none where the system does not tell."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        found |= {int(text) for text in file.read_text().split()}
    return {child for child in found if not _is_dead(child)}


def _is_dead(process: int) -> bool:
    """Whether it has ended, though nobody may have asked for its exit code."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def _ends(before: set[int]) -> bool:
    """Whether all processes but those of ``before`` end in time."""
    until = time.monotonic() + PATIENCE_S
    while _children() - before:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
