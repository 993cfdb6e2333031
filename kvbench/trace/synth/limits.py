"""What the parameters and times of a synthetic workload may be."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.units import MAX_NS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_params(
    workload: str,
    params: Any,
    *,
    floors: Mapping[str, int],
    choices: Mapping[str, tuple[str, ...]],
    shares: tuple[str, ...] = (),
) -> None:
    """Raise ConfigError for a parameter that is below its floor, not finite, none of its choices, or as a share
    above 1."""
    for name, floor in floors.items():
        if not getattr(params, name) >= floor:
            raise ConfigError(f"workload {workload}: {name} = {getattr(params, name)} is below {floor}")
    for name in floors:
        if not math.isfinite(getattr(params, name)):
            raise ConfigError(f"workload {workload}: {name} = {getattr(params, name)} must be a finite number")
    for name in shares:
        if getattr(params, name) > 1:
            raise ConfigError(f"workload {workload}: {name} = {getattr(params, name)} is above 1, and it is a share")
    for name, known in choices.items():
        if getattr(params, name) not in known:
            raise ConfigError(
                f"workload {workload}: {name} = {getattr(params, name)!r} is not one of {', '.join(known)}"
            )


def nanoseconds(workload: str, seconds: float, *, goes_on: str, advice: str) -> int:
    """``seconds`` of a trace's clock; raises ConfigError for what 64 bits do not hold, with who ``goes_on``
    for so long, and what to do."""
    if seconds > MAX_NS / NS_PER_S:
        raise too_late(workload, goes_on=goes_on, advice=advice)
    return round(seconds * NS_PER_S)


def too_late(workload: str, *, goes_on: str, advice: str) -> ConfigError:
    """The error for a time that 64 bits do not hold."""
    return ConfigError(
        f"workload {workload}: {goes_on} go on for more than 292 years, and times are 64-bit nanoseconds; {advice}"
    )
