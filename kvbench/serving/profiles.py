"""Named parameters of the compute model ``linear``: the profiles of ``profiles.toml``."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.serving.formulas import Linear

if TYPE_CHECKING:
    from kvbench.serving.compute import ComputeContext

MUST = ("prefill_ms_per_token", "decode_ms")
"""Parameters of ``linear`` that nothing stands for."""


def load_profiles() -> dict[str, dict[str, float | str]]:
    """The profiles by name: parameters of ``linear``, and their ``source``."""
    return tomllib.loads((files("kvbench.serving") / "profiles.toml").read_text("utf-8"))


def make_linear(
    context: ComputeContext,
    *,
    profile: str | None = None,
    load_requests: int = 256,
    mix: str = "sum",
    **given: float,
) -> Linear:
    """``linear`` with the parameters of ``profile``, and those that are ``given`` over them.

    Raises ConfigError for an unknown profile, and without one for a parameter that is missing.
    """
    params: dict[str, float] = {"prompt_ms": 0.0, "load_factor": 1.0}
    if profile is not None:
        profiles = load_profiles()
        if profile not in profiles:
            raise ConfigError(
                f"compute model linear: unknown profile {profile!r}; {did_you_mean(profile, sorted(profiles))}"
            )
        params |= {name: float(value) for name, value in profiles[profile].items() if name != "source"}
    params |= given
    for name in MUST:
        if name not in params:
            raise ConfigError(f"compute model linear: give {name}, or a profile: {', '.join(sorted(load_profiles()))}")
    return Linear(context, **params, load_requests=load_requests, mix=mix)
