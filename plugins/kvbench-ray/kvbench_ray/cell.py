"""One cell, on the worker that Ray gave it to."""

from __future__ import annotations

from contextlib import chdir, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.plugins import Registry, load_registry
from kvbench.sweeps.cell import run_cell
from kvbench.trace import TraceBytes

if TYPE_CHECKING:
    import pyarrow as pa

    from kvbench.sweeps.executor import CellOutcome, CellTask


def run_there(task: CellTask, folder: str, data: pa.Buffer | None) -> CellOutcome:
    """Replay the cell of ``task``.

    ``folder``  where the sweep was started: files that the settings name are found from there, if it is here, too.
    ``data``    the bytes of the trace in the object store; None: the file is read.
    """
    source = None if data is None else TraceBytes(task.settings["trace"], data)
    with chdir(folder) if Path(folder).is_dir() else nullcontext():
        return run_cell(task, source, registry=_registry(task.autoload))


@cache
def _registry(autoload: bool) -> Registry:
    """The parts there are, which a worker process keeps from cell to cell."""
    return load_registry(autoload=autoload)
