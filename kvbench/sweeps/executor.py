"""What runs the cells of a sweep somewhere: the contract that executors keep.

An executor is given tasks, which are plain data, calls :func:`kvbench.sweeps.cell.run_cell` for each on
whatever it has (processes of this machine, nodes of a cluster), and hands back outcomes as they come in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class CellTask(msgspec.Struct, frozen=True, kw_only=True):
    """One cell to run, in plain values, so that it can go to another process or machine.

    ``number``    of the cell in its sweep, from 0.
    ``settings``  the keys of a run file, ``trace`` among them.
    ``autoload``  whether installed plugins count; built-in parts always do.
    """

    number: int
    settings: dict[str, Any]
    autoload: bool = True


class CellOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one cell; equal for equal cells, wherever they ran.

    ``number``    of its task.
    ``status``    ``done`` or ``failed``.
    ``manifest``  versions, effective configuration and trace of a replay that is done.
    ``summary``   its figures.
    ``error``     why it failed, on one line.
    """

    number: int
    status: Literal["done", "failed"]
    manifest: dict[str, Any] | None = None
    summary: dict[str, Any] | None = None
    error: str | None = None

    @classmethod
    def failed(cls, task: CellTask, error: str) -> CellOutcome:
        """The outcome of a task that could not be carried out, a lost worker's for one."""
        return cls(number=task.number, status="failed", error=error)


class Executor(ABC):
    """Runs cells. A subclass is what the factory of an :class:`kvbench.ExecutorSpec` makes."""

    @abstractmethod
    def run(self, tasks: Sequence[CellTask]) -> Iterator[CellOutcome]:
        """Carry out ``tasks`` and yield one outcome for each as it comes in, in any order.

        A cell that fails is an outcome, not an exception (``run_cell`` sees to that). A worker that is lost is
        tried again elsewhere; when that is in vain, the outcome is :meth:`CellOutcome.failed`. Where the iterator
        is closed early, the executor lets go of all that it holds.
        """
