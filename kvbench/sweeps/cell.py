"""One cell of a sweep: a replay whose outcome, good or bad, is a value."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kvbench.config import load_config
from kvbench.errors import KvbenchError, one_line
from kvbench.plugins import load_registry
from kvbench.results.run import run_replay
from kvbench.sweeps.executor import CellOutcome

if TYPE_CHECKING:
    from kvbench.plugins import Registry
    from kvbench.sweeps.executor import CellTask
    from kvbench.trace.reader import TraceSource


def run_cell(task: CellTask, source: TraceSource | None = None, *, registry: Registry | None = None) -> CellOutcome:
    """Replay the cell of ``task``. Raises no Exception: whatever goes wrong is a failed outcome.

    ``source``    instead of the trace that the settings name: anything that ``open_trace`` takes.
    ``registry``  the parts to choose from, where the caller keeps them from cell to cell; None: as the task says.
    """
    started = time.perf_counter()
    try:
        config = load_config(None, task.settings)
        parts = load_registry(autoload=task.autoload) if registry is None else registry
        result = run_replay(config, parts, source=source)
    except KvbenchError as error:
        return CellOutcome.failed(task, " ".join(str(error).split()))
    except Exception as error:  # a stranger's part may raise anything, and the other cells go on
        return CellOutcome.failed(task, one_line(error))
    return CellOutcome(
        number=task.number,
        status="done",
        manifest=result.manifest,
        summary=result.summary,
        wall_s=time.perf_counter() - started,
    )
