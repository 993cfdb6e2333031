"""The timed part of a plan: the clock's settings in nanoseconds, and the links that transfers pass."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvbench.config import parse_part
from kvbench.errors import ConfigError
from kvbench.replays.parts import ChosenPart, choose
from kvbench.serveconfig import (
    ArrivalsConfig,
    SloConfig,
    StopConfig,
    Warmup,
    WindowConfig,
    WorkerConfig,
    parse_warmup,
    time_ns,
)
from kvbench.serving.devices import FIGURES
from kvbench.specs import ComputeModelSpec, EvictionPolicySpec
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.replays.tierplan import TierPlan
    from kvbench.serveconfig import LinkConfig
    from kvbench.trace.reader import Trace

FITTED_ON = "fitted_on"
"""A key of every compute model: the engine, and its version, whose times gave the parameters."""

DEFAULT_BLOCK_TOKENS = 16
"""Tokens of a block of GPU memory where the trace has no ids, and no block size either."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """:class:`~kvbench.serveconfig.WorkerConfig` with its times in nanoseconds; ``fetches`` 0: any number."""

    batch_tokens: int
    sequences: int
    fetches: int
    chunked: bool
    share: bool
    load: str
    step_overhead_ns: int
    rebuild_ns: int
    store: str
    preempt: str
    decode: bool


@dataclass(frozen=True, slots=True)
class ArrivalsPlan:
    """:class:`~kvbench.serveconfig.ArrivalsConfig` with an exact rate and times in nanoseconds."""

    mode: str
    rate: Fraction
    jitter_ns: int
    concurrency: int | None
    think_ns: int | None


@dataclass(frozen=True, slots=True)
class SloPlan:
    """Limits of goodput; None: no limit."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    e2e_ns: int | None = None


@dataclass(frozen=True, slots=True)
class StopPlan:
    """When the run ends before its trace; None: not for this reason.

    ``time_ns``    of the simulated clock; what arrives then or later is not let in.
    ``converged``  share of the mean TTFT.
    """

    time_ns: int | None
    rows: int | None
    converged: float | None
    stall_steps: int


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Which requests count: not the first ``warmup_rows`` of the trace, not those that arrive before
    ``warmup_ns`` or ``start_ns``, and not those that arrive at ``end_ns`` (None: never) or later."""

    warmup_rows: int
    warmup_ns: int
    start_ns: int
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A named link of the paths of tiers; ``group`` workers share one."""

    name: str
    read_bandwidth_bytes_per_s: int
    write_bandwidth_bytes_per_s: int
    read_latency_ns: int
    write_latency_ns: int
    concurrent_operations: int | None
    sharing: str
    group: int


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What a timed replay needs beside the rest of its plan.

    ``seeds``         how many runs, with seeds from that of the configuration on.
    ``sample_ns``     between two samples of the timeline; 0: there is none.
    ``block_tokens``  tokens of a block of GPU memory; of a block of the trace where it has ids.
    ``notes``         what was assumed of the trace, for the manifest.
    ``fitted_on``     the engine whose times the compute model was fitted to; empty: nobody said.
    """

    compute: ChosenPart
    worker: WorkerPlan
    arrivals: ArrivalsPlan
    slo: SloPlan
    stop: StopPlan
    window: WindowPlan
    links: tuple[LinkPlan, ...]
    seeds: int
    sample_ns: int
    block_tokens: int
    notes: tuple[str, ...]
    fitted_on: str = ""


def plan_serving(
    config: RunConfig, registry: Registry, trace: Trace, tiers: Sequence[TierPlan], block_tokens: int
) -> ServePlan:
    """Resolve the timed part of ``config``, whose tiers are ``tiers``, the GPU's first.

    Raises ConfigError for what the trace has no columns for, for a policy that looks ahead, and for a tier
    whose transfers take time but whose blocks have no size.
    """
    assert config.compute is not None
    name, params = parse_part(config.compute, "--compute")
    fitted_on = str(params.pop(FITTED_ON, ""))
    compute = choose(registry, ComputeModelSpec, {"name": name, **params}, "--compute")
    for tier in tiers[1:]:
        if (tier.device is not None or tier.config.path) and tier.chunk_bytes is None:
            raise ConfigError(
                f"{tier.config.setting}: its transfers take time, by the size of a block: give --block-bytes or --model"
            )
    for tier in tiers:
        spec = None if tier.policy is None else tier.policy.spec
        if isinstance(spec, EvictionPolicySpec) and spec.looks_ahead:
            raise ConfigError(
                f"{tier.config.setting}: policy {spec.name} looks ahead in the order of the trace, which is not "
                "that of a timed replay"
            )
    if config.seeds > 1 and not trace.rewindable:
        raise ConfigError(f"--seeds = {config.seeds} needs the trace as often, and {trace.name} can be read only once")
    stop = config.stop or StopConfig()
    sample_ns = time_ns(config.sample, "--sample") or NS_PER_S
    return ServePlan(
        compute,
        _worker(config.worker or WorkerConfig()),
        _arrivals(config.arrivals or ArrivalsConfig(), trace),
        _slo(config.slo or SloConfig()),
        StopPlan(time_ns(stop.time, "--stop: time"), stop.rows, stop.converged, stop.stall_steps),
        _window(config.window or WindowConfig(), stop.rows, trace),
        tuple(_link(link, config) for link in config.links or ()),
        config.seeds,
        sample_ns if config.timeline is not None else 0,
        block_tokens,
        (*_notes(trace, block_tokens), *_fitted(name, fitted_on)),
        fitted_on,
    )


def serving_block_tokens(trace: Trace) -> int:
    """Tokens of a block of GPU memory: those of the trace's blocks, else DEFAULT_BLOCK_TOKENS."""
    return trace.facts.block_tokens or DEFAULT_BLOCK_TOKENS


def _worker(config: WorkerConfig) -> WorkerPlan:
    return WorkerPlan(
        config.batch_tokens,
        config.sequences,
        config.fetches,
        config.chunked,
        config.share,
        config.load,
        time_ns(config.step_overhead, "--worker: step_overhead") or 0,
        time_ns(config.rebuild, "--worker: rebuild") or 0,
        config.store,
        config.preempt,
        config.decode,
    )


def _arrivals(config: ArrivalsConfig, trace: Trace) -> ArrivalsPlan:
    if config.mode == "session" and "session_id" not in trace.schema.names:
        raise ConfigError(
            f"--arrivals session needs session_id, which {trace.name} has not; its columns are "
            f"{', '.join(trace.schema.names)}"
        )
    if config.mode == "session" and config.think is None and "think_time_ns" not in trace.schema.names:
        raise ConfigError(
            f"--arrivals session: think time is unknown: {trace.name} has no think_time_ns; give the pause before each "
            "turn, as in session,think=5s"
        )
    return ArrivalsPlan(
        config.mode,
        Fraction(str(config.rate)),
        time_ns(config.jitter, "--arrivals: jitter") or 0,
        config.concurrency,
        time_ns(config.think, "--arrivals: think"),
    )


def _slo(config: SloConfig) -> SloPlan:
    return SloPlan(*(time_ns(getattr(config, name), f"--slo: {name}") for name in ("ttft", "tpot", "e2e")))


def _window(config: WindowConfig, stop_rows: int | None, trace: Trace) -> WindowPlan:
    warmup = Warmup() if config.warmup is None else parse_warmup(config.warmup)
    rows = warmup.rows
    if warmup.share:
        if trace.rows is None:
            raise ConfigError(
                f"--window: warmup = {config.warmup}: {trace.name} does not say how many rows it has; give rows or a "
                "time, or save it to a file"
            )
        rows = int(warmup.share * min(trace.rows, stop_rows or trace.rows))
    return WindowPlan(
        rows,
        warmup.ns,
        time_ns(config.start, "--window: start") or 0,
        time_ns(config.end, "--window: end"),
    )


def _link(link: LinkConfig, config: RunConfig) -> LinkPlan:
    figures = {figure.key: figure for figure in FIGURES}
    where = f"{link.setting}: "

    def of(key: str, value: float | None) -> int:
        found = figures[key].parse(value, where)
        assert isinstance(found, int)
        return found

    return LinkPlan(
        link.name,
        of("read_gb_per_s", link.read_gb_per_s),
        of("write_gb_per_s", link.read_gb_per_s if link.write_gb_per_s is None else link.write_gb_per_s),
        of("read_latency_us", link.read_latency_us),
        of("write_latency_us", link.read_latency_us if link.write_latency_us is None else link.write_latency_us),
        link.concurrent_operations,
        link.sharing,
        {"worker": 1, "host": config.workers_per_host, "cluster": config.workers}[link.scope],
    )


def _fitted(name: str, fitted_on: str) -> list[str]:
    return [f"the parameters of compute model {name} were fitted to times of {fitted_on}"] if fitted_on else []


def _notes(trace: Trace, block_tokens: int) -> list[str]:
    notes = []
    if trace.ids is None:
        notes.append(f"no ids: nothing hits; GPU memory is counted in blocks of {block_tokens} tokens")
    if "output_tokens" not in trace.schema.names:
        notes.append("no output_tokens: each request generates one token")
    return notes
