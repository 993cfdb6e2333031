"""The library's way in: the same paths as ``kvbench replay`` and ``kvbench curve``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kvbench.config import RunConfig, load_config
from kvbench.plugins import load_registry
from kvbench.replays.parts import choose
from kvbench.results.accuracy import compare_measured as run_beside
from kvbench.results.compare import compare_runs
from kvbench.results.curve import run_curve
from kvbench.results.matrix import run_matrix
from kvbench.results.measured import read_measured_requests
from kvbench.results.run import run_repeats, run_replay
from kvbench.results.runfile import read_run
from kvbench.specs import ExecutorSpec
from kvbench.sweeps.compare import compare_sweep_files
from kvbench.sweeps.plan import make_plan
from kvbench.sweeps.run import run_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Literal

    from kvbench.plugins import Registry
    from kvbench.replays.sample import SampleChoice
    from kvbench.results.accuracy import MeasuredComparison
    from kvbench.results.compare import Comparison
    from kvbench.results.curve import CurveResult
    from kvbench.results.matrix import MatrixResult
    from kvbench.results.repeats import RepeatResult
    from kvbench.results.result import ReplayResult
    from kvbench.sweeps.compare import SweepComparison
    from kvbench.sweeps.executor import Executor
    from kvbench.sweeps.result import SweepResult
    from kvbench.trace.reader import TraceSource


def replay(
    trace: TraceSource | None = None,
    *,
    config: RunConfig | None = None,
    registry: Registry | None = None,
    keep_requests: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
    **settings: Any,
) -> ReplayResult:
    """Replay a trace and return what happened.

    ``trace``          a path, ``"-"``, an open stream, a pyarrow Table or a RecordBatchReader.
    ``settings``       the keys of :class:`kvbench.RunConfig`: ``capacity="10k"``, ``policy="lru"``,
                       ``workers=4``, … They override ``config``.
    ``registry``       the parts to choose from; by default the built-in ones and all installed plugins, which are
                       looked for anew, in about 10 ms: of many short replays, give them one ``load_registry()``.
    ``keep_requests``  keep the table with a row a request in ``result.requests``.
    ``progress``       called after each batch with the rows done and the rows there are (or None).

    Raises a :class:`kvbench.KvbenchError` for a bad setting, trace or plugin.

        >>> import kvbench
        >>> kvbench.replay("traces/chat.arrow", capacity=100, policy="fifo").summary["blocks"]["evicted"] > 0
        True
    """
    return run_replay(
        _configured(config, settings),
        registry if registry is not None else load_registry(),
        source=trace,
        keep_requests=keep_requests,
        progress=progress,
        clock=time.perf_counter,
    )


def replay_matrix(
    trace: TraceSource | None = None,
    *,
    config: RunConfig | None = None,
    registry: Registry | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    **settings: Any,
) -> MatrixResult:
    """Replay a trace under several policies, routers and capacities, decoded once.

    Arguments as for :func:`replay`, but ``policy``, ``router`` and ``capacity`` may be lists.

        >>> import kvbench
        >>> result = kvbench.replay_matrix("traces/chat.arrow", policy=["lru", "arc"], capacity=[100, "10%"])
        >>> [cell["policy"] for cell in result.cells]
        ['lru', 'arc', 'lru', 'arc']
    """
    return run_matrix(
        _configured(config, settings),
        registry if registry is not None else load_registry(),
        source=trace,
        progress=progress,
        clock=time.perf_counter,
    )


def replay_seeds(
    trace: TraceSource | None = None,
    *,
    config: RunConfig | None = None,
    registry: Registry | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    **settings: Any,
) -> RepeatResult:
    """Replay a trace on the clock under several seeds: what each figure is on average, and how sure that is.

    Arguments as for :func:`replay`; ``seeds`` says how many, from ``seed`` on. ``trace`` is read as often, so a
    stream will not do.

        >>> import kvbench
        >>> result = kvbench.replay_seeds(
        ...     "traces/chat.arrow", compute="poly", workers=2, router="random", capacity="10%", seeds=3
        ... )
        >>> result.figures["timed.ttft_ns.p99"].n
        3
    """
    return run_repeats(
        _configured(config, settings),
        registry if registry is not None else load_registry(),
        source=trace,
        progress=progress,
        clock=time.perf_counter,
    )


def curve(
    trace: TraceSource | None = None,
    *,
    capacities: str | None = None,
    sample: SampleChoice | None = None,
    config: RunConfig | None = None,
    registry: Registry | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    **settings: Any,
) -> CurveResult:
    """Find the exact LRU hit rates of every capacity in one pass over a trace.

    ``capacities``  to report, for example ``"1k,10%,64GiB"`` or ``"1k..1M"``; by default about twenty.
    ``sample``      a :class:`kvbench.SampleChoice`: look at some of the trace, and give error bars.
    Others as for :func:`replay`; settings that say which cache it is have no effect and are refused.

        >>> import kvbench
        >>> row = kvbench.curve("traces/chat.arrow", capacities="1k").curve[0]
        >>> row["rates"] == kvbench.replay("traces/chat.arrow", capacity="1k").rates
        True
    """
    return run_curve(
        _configured(config, settings),
        registry if registry is not None else load_registry(),
        capacities=capacities,
        sample=sample,
        source=trace,
        progress=progress,
        clock=time.perf_counter,
    )


def sweep(
    trace: str | Path | None = None,
    *,
    vary: Mapping[str, Any] | None = None,
    cells: Sequence[Mapping[str, Any]] = (),
    file: Path | None = None,
    executor: Executor | str | None = None,
    output: str | None = None,
    force: bool = False,
    method: Literal["auto", "replay"] = "auto",
    registry: Registry | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    **settings: Any,
) -> SweepResult:
    """Replay a trace under many settings; a replay that fails is a cell of the result that says so.

    ``trace``     a path: each cell reads it for itself.
    ``vary``      setting path → values: a list, or a text such as ``"1k,10k"`` or ``"1k..1M"``. It is a grid.
    ``cells``     combinations of settings by path; the grid is taken for each.
    ``file``      a sweep file (TOML), on top of which the rest comes.
    ``executor``  where cells run: the name of one with its parameters (``"local,processes=4"``), or an object; None:
                  one after another in this process. Processes load installed plugins, whatever ``registry`` has.
    ``output``    .parquet or .csv to write; a sweep that was cut short goes on from there.
    ``force``     run all anew, and replace ``output``.
    ``method``    ``auto``: LRU over capacities is answered by the exact curve; ``replay``: nothing is.
    ``settings``  of all cells: the keys of :class:`kvbench.RunConfig`. Several capacities, policies or routers are
                  axes of the grid, and so are ``seeds``. The Belady bound is off unless ``belady`` asks for it.
    Others as for :func:`replay`, but that ``progress`` is told of cells.

        >>> import kvbench
        >>> result = kvbench.sweep("traces/chat.arrow", vary={"capacity": "100..10k:3", "policy": ["lru", "arc"]})
        >>> [cell.method for cell in result.cells]
        ['curve', 'replay', 'curve', 'replay', 'curve', 'replay']
    """
    parts = registry if registry is not None else load_registry()
    place: Executor | None = (
        choose(parts, ExecutorSpec, executor, "executor").make() if isinstance(executor, str) else executor
    )
    return run_sweep(
        make_plan(trace, file=file, settings=settings, vary=vary, cells=cells),
        parts,
        executor=place,
        output=output,
        force=force,
        method=method,
        progress=progress,
        clock=time.perf_counter,
    )


def compare(*runs: str | Path, different_traces: bool = False) -> Comparison:
    """Compare runs with the first of them: requests files of replays (``-o``), or documents (``--json``).

    Raises a :class:`kvbench.KvbenchError` for files that are neither, and for runs of different traces unless
    ``different_traces``.
    """
    return compare_runs([read_run(run) for run in runs], different_traces=different_traces)


def compare_sweeps(*sweeps: str | Path, different_traces: bool = False) -> SweepComparison:
    """Compare sweeps (``kvbench sweep -o``) with the first of them, cell by cell; otherwise as :func:`compare`."""
    return compare_sweep_files(sweeps, different_traces=different_traces)


def compare_measured(
    run: str | Path,
    measured: str | Path,
    *,
    engine: str | None = None,
    columns: Mapping[str, str] | None = None,
    benchmark: int | None = None,
) -> MeasuredComparison:
    """Say how far the requests file ``run`` of a timed replay is from what was measured.

    ``measured``   what vLLM's benchmark, AIPerf or GuideLLM wrote, or a table with columns such as ``ttft_ms``.
    ``engine``     what was measured, with its version.
    ``columns``    what a table calls its columns; ``benchmark`` which one, from 1, of a file that has several.

    Raises a :class:`kvbench.KvbenchError` where the two cannot be compared.
    """
    requests = read_measured_requests(measured, columns=columns, benchmark=benchmark)
    return run_beside(run, requests, engine=engine)


def _configured(config: RunConfig | None, settings: dict[str, Any]) -> RunConfig:
    # What is at its default is not given, or it would override a preset.
    defaults = RunConfig().to_dict()
    base = config.to_dict() if config is not None else {}
    base = {name: value for name, value in base.items() if name not in defaults or value != defaults[name]}
    return load_config(None, {**base, **settings})
