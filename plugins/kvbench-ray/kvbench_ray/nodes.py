"""What must hold on every node before the first cell runs, found out by a task on each."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, TypedDict

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kvbench.errors import ConfigError, PluginError, one_line
from kvbench_ray.cluster import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable


class Findings(TypedDict):
    """What a task finds on its node.

    ``kvbench``  its version, None where it is not installed.
    ``plugins``  version of each distribution with kvbench plugins.
    ``broken``   why kvbench cannot be used, or empty.
    ``sizes``    bytes of each file, None where there is no such file.
    """

    kvbench: str | None
    plugins: dict[str, str]
    broken: str
    sizes: dict[str, int | None]


def make_survey() -> Callable[[list[str]], Findings]:
    """The task. It is made inside of a function so that Ray sends all of its code: the node may have no kvbench."""

    def survey(files: list[str]) -> dict[str, Any]:
        import os
        from importlib.metadata import PackageNotFoundError, entry_points, version

        try:
            own = version("kvbench")
        except PackageNotFoundError:
            own = None
        broken = ""
        try:
            import kvbench_ray.cell  # noqa: F401
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
        points = entry_points(group="kvbench")
        return {
            "kvbench": own,
            "plugins": {point.dist.name: point.dist.version for point in points if point.dist is not None},
            "broken": broken,
            "sizes": {file: os.path.getsize(file) if os.path.isfile(file) else None for file in files},
        }

    return survey  # type: ignore[return-value]


def cells_at_once(cpus: float) -> int:
    """How many cells of so many CPUs the cluster has room for, as it is now."""
    return sum(math.floor(node["Resources"].get("CPU", 0) / cpus) for node in ray.nodes() if node["Alive"])


def check_nodes(files: list[str], cpus: float, *, plugins: bool) -> None:
    """See to it that every node that cells may run on has kvbench as it is here, and ``files``.

    ``cpus``     that a cell takes up.
    ``plugins``  whether installed plugins count.

    Raises ConfigError and PluginError, which name the node.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    fit = [node for node in alive if node["Resources"].get("CPU", 0) >= cpus]
    if not fit:
        most = max((node["Resources"].get("CPU", 0) for node in alive), default=0)
        raise ConfigError(f"{OWNER}: cpus = {cpus:g}: no node has as many; the largest has {most:g}")
    survey = make_survey()
    task = ray.remote(survey)
    asked = [
        task.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            files
        )
        for node in fit
    ]
    here = survey(files)
    for node, answer in zip(fit, asked, strict=True):
        name = f"{OWNER}: node {node['NodeManagerAddress']}"
        try:
            there: Findings = ray.get(answer)
        except ray.exceptions.RayError as error:
            raise ConfigError(f"{name} cannot run a task: {one_line(error)}") from error
        _require_equal(name, there, here, plugins=plugins)


def _require_equal(name: str, there: Findings, here: Findings, *, plugins: bool) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if there["kvbench"] is None and here["kvbench"] is not None:
        raise PluginError(f"{name} has no kvbench; install kvbench {here['kvbench']} there, for Python {python}")
    if there["kvbench"] != here["kvbench"]:
        raise PluginError(f"{name} has kvbench {there['kvbench']}; install {here['kvbench']} there, which is here")
    if there["broken"]:
        raise PluginError(f"{name} cannot run cells: {there['broken']}; install kvbench-ray and what it needs there")
    for plugin, version in here["plugins"].items() if plugins else ():
        found = there["plugins"].get(plugin)
        if found != version:
            raise PluginError(f"{name} has {found or 'no'} {plugin}; install {plugin} {version} there, which is here")
    for file, size in there["sizes"].items():
        if size is None:
            raise ConfigError(
                f"{name} has no file {file}; put it where every node sees it, or send its bytes with "
                "`--executor ray,trace=object`"
            )
        if size != here["sizes"][file]:
            raise ConfigError(
                f"{name} has another {file}: {size:,} bytes, not {here['sizes'][file]:,}; send the bytes of the one "
                "here with `--executor ray,trace=object`"
            )
