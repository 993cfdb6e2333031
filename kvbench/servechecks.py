"""What a run configuration may say of timed replay, all settings taken together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.serveconfig import MAX_SEEDS, SERVING_TABLES, Warmup, WorkerConfig, parse_warmup, time_ns
from kvbench.tables import option_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.config import RunConfig
    from kvbench.serveconfig import LinkConfig, StopConfig, WindowConfig
    from kvbench.tierconfig import TierConfig

TELLS_OF_TIME = {
    **{name: option_of(name) for name in (*SERVING_TABLES, "seeds", "sample")},
    "links": "--link",
}
"""Settings that mean nothing without a clock, with their options."""


def check_clock(config: RunConfig) -> None:
    """Raise ConfigError for a setting that has no effect with a clock, or without one, or is out of range."""
    defaults = type(config)()
    if config.compute is None:
        for name, typed in TELLS_OF_TIME.items():
            if getattr(config, name) != getattr(defaults, name):
                raise ConfigError(f"{typed} has no effect without --compute, which makes a replay a timed one")
        for tier in config.tiers or []:
            for name in ("sharing", "path", "transfer"):
                if getattr(tier, name) is not None:
                    raise ConfigError(f"{tier.setting}: {name} has no effect without --compute")
        return
    if config.order == "access":
        raise ConfigError("--order access has no effect with --compute: requests are served whole, side by side")
    if config.belady == "on":
        raise ConfigError("--belady on has no effect with --compute: the bound is that of order replay")
    if config.timeline_every != defaults.timeline_every:
        raise ConfigError("--timeline-every has no effect with --compute; give --sample, a time")
    if not 1 <= config.seeds <= MAX_SEEDS:
        raise ConfigError(f"--seeds = {config.seeds} must be from 1 to {MAX_SEEDS:,}")
    for name in ("output", "events", "timeline"):
        if config.seeds > 1 and getattr(config, name) is not None:
            raise ConfigError(f"--seeds = {config.seeds}: {option_of(name)} is a file of one run; give one seed")
    if config.sample is not None and config.timeline is None:
        raise ConfigError("--sample has no effect without --timeline")
    time_ns(config.sample, "--sample", positive=True)
    for table in (config.worker, config.arrivals, config.slo, config.stop, config.window):
        if table is not None:
            table.check()
    if config.slo is not None and config.slo.tpot is not None and config.worker and not config.worker.decode:
        raise ConfigError("--slo: tpot has no effect with --worker decode=false: no token follows the first")
    if config.stop is not None and config.window is not None:
        _check_window(config.stop, config.window)


def _check_window(stop: StopConfig, window: WindowConfig) -> None:
    """Raise ConfigError for a window that begins when the run has ended."""
    warmup = parse_warmup(window.warmup) if window.warmup is not None else Warmup()
    if stop.rows is not None and warmup.rows >= stop.rows:
        raise ConfigError(f"--window: warmup = {window.warmup} leaves nothing over of --stop rows={stop.rows}")
    stop_ns = time_ns(stop.time, "--stop: time")
    start_ns = time_ns(window.start, "--window: start") or 0
    if stop_ns is not None and max(warmup.ns, start_ns) >= stop_ns:
        raise ConfigError(f"--window begins when the run has ended, at --stop time={stop.time}")


def check_transfers(config: RunConfig, tiers: Sequence[TierConfig]) -> None:
    """Raise ConfigError for what does not fit together in what a timed replay of ``tiers`` moves, and over what."""
    if not tiers:
        raise ConfigError("--compute needs a tier: the GPU's memory")
    links = config.links or []
    _check_links(links, tiers)
    _check_worker(config.worker or WorkerConfig(), tiers)
    for link in links:
        if link.scope != "worker" and config.workers == 1:
            raise ConfigError(f"{link.setting}: scope {link.scope} has no effect with one worker; give --workers")
        if link.scope == "host" and config.workers_per_host == 1:
            raise ConfigError(f"{link.setting}: scope host is scope worker unless --workers-per-host is above 1")


def _check_links(links: Sequence[LinkConfig], tiers: Sequence[TierConfig]) -> None:
    """Raise ConfigError for links that are no links, for paths over others, and for what no transfer passes."""
    names = [link.name for link in links]
    for at, link in enumerate(links):
        link.check()
        if link.name in names[:at]:
            raise ConfigError(f"two links are called {link.name}")
        if any(tier.name == link.name for tier in tiers):
            raise ConfigError(f"a link and a tier are both called {link.name}")
    for at, tier in enumerate(tiers):
        _check_path(tier, names, first=at == 0)
    for name in names:
        if all(name not in (tier.path or ()) for tier in tiers):
            raise ConfigError(f"link {name} has no effect: it is in no tier's path; give --tier NAME,path={name}")


def _check_path(tier: TierConfig, links: list[str], *, first: bool) -> None:
    """The settings of one tier's transfers."""
    path = tier.path or []
    for name in ("sharing", "path", "transfer"):
        if first and getattr(tier, name) is not None:
            raise ConfigError(
                f"{tier.setting}: {name} has no effect in the fastest tier: transfers are those of the tiers below it"
            )
    for at, name in enumerate(path):
        if name not in links:
            known = did_you_mean(name, links) if links else "there are none; give --link"
            raise ConfigError(f"{tier.setting}: path = {'+'.join(path)}: unknown link {name!r}; {known}")
        if name in path[:at]:
            raise ConfigError(f"{tier.setting}: path = {'+'.join(path)} passes link {name} twice")
    if tier.sharing is not None and tier.device is None:
        raise ConfigError(f"{tier.setting}: sharing has no effect without a device")
    if tier.transfer is not None and len(path) + (tier.device is not None) < 2:
        raise ConfigError(f"{tier.setting}: transfer has no effect: no two links are passed; give a device and a path")


def _check_worker(worker: WorkerConfig, tiers: Sequence[TierConfig]) -> None:
    """Raise ConfigError for settings of workers that mean nothing with these tiers."""
    defaults = WorkerConfig()
    if worker.fetches != defaults.fetches and len(tiers) == 1:
        raise ConfigError("--worker: fetches has no effect with one tier: there is nothing to fetch from")
    if any(tier.device is not None or tier.path for tier in tiers[1:]):
        return
    for name in ("load", "store"):
        if getattr(worker, name) != getattr(defaults, name):
            raise ConfigError(
                f"--worker: {name} has no effect where no transfer takes time; give a tier below the first a device"
            )
