"""One cell of a sweep: a replay whose outcome, good or bad, is a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.config import RunConfig, load_config
from kvbench.errors import KvbenchError, one_line
from kvbench.plugins import load_registry
from kvbench.results.run import open_configured, run_replay
from kvbench.sweeps.executor import CellOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.plugins import Registry
    from kvbench.sweeps.executor import CellTask
    from kvbench.trace.reader import Trace, TraceSource

OF_TRACE = ("block_tokens", "tail_rule", "id_kind", "id_scope", "on_error")
"""Settings with which a trace is opened."""

HELD_BYTES = 2**28
"""Rows of the trace that a process keeps from cell to cell; a longer trace is read and checked for each."""


def run_cell(task: CellTask, source: TraceSource | None = None, *, registry: Registry | None = None) -> CellOutcome:
    """Replay the cell of ``task``. Raises no Exception: whatever goes wrong is a failed outcome.

    ``source``    instead of the trace that the settings name: anything that ``open_trace`` takes.
    ``registry``  the parts to choose from; None: those that there are, looked for anew.
    """
    return _outcome(task, lambda config: (registry or load_registry(autoload=task.autoload), source))


class CellRunner:
    """Runs one cell after another with the parts of ``registry``; a trace is opened, and its rows checked, once."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._opened: tuple[tuple[Any, ...], Trace] | None = None

    def run(self, task: CellTask) -> CellOutcome:
        """As :func:`run_cell`."""
        return _outcome(task, lambda config: (self._registry, self._trace(config)))

    def _trace(self, config: RunConfig) -> Trace:
        key = (config.trace, *(getattr(config, name) for name in OF_TRACE))
        if self._opened is None or self._opened[0] != key:
            self._opened = key, open_configured(config, hold_bytes=HELD_BYTES)
        return self._opened[1]


def _outcome(
    task: CellTask, parts_of: Callable[[RunConfig], tuple[Registry, TraceSource | Trace | None]]
) -> CellOutcome:
    try:
        config = load_config(None, task.settings)
        registry, source = parts_of(config)
        result = run_replay(config, registry, source=source)
    except KvbenchError as error:
        return CellOutcome.failed(task, " ".join(str(error).split()))
    except Exception as error:  # a stranger's part may raise anything, and the other cells go on
        return CellOutcome.failed(task, one_line(error))
    return CellOutcome(number=task.number, status="done", manifest=result.manifest, summary=result.summary)
