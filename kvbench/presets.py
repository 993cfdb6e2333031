"""Presets: named systems as settings of one machine.

A preset is a TOML file ``kvbench/presets/NAME.toml``: the keys of a run file, and a table
``about`` that names the system, its version and, for each setting, where it comes from. What the
user gives overrides it; tiers are matched by name.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean

WITHOUT_BOUND = (
    *("policy", "order", "quotas", "high", "low", "ratio", "period_s"),
    *("partial", "touch_on", "spare_own", "fit"),
)
"""Keys of a tier that mean nothing once a user gives it infinite capacity."""


@dataclass(frozen=True, slots=True)
class Preset:
    """``settings`` are keys of :class:`kvbench.RunConfig`; ``sources`` says for each setting (a tier's
    as ``tier.key``) where it comes from."""

    name: str
    system: str
    version: str
    help: str
    sources: dict[str, str]
    settings: dict[str, Any]


def preset_names() -> list[str]:
    """All presets, sorted."""
    folder = files("kvbench") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_preset(name: str) -> Preset:
    """The preset of this name. Raises ConfigError for an unknown one."""
    names = preset_names()
    if name not in names:
        raise ConfigError(f"unknown preset {name!r}; {did_you_mean(name, names)}")
    settings = tomllib.loads((files("kvbench") / "presets" / f"{name}.toml").read_text("utf-8"))
    about = settings.pop("about")
    return Preset(name, about["system"], about["version"], about["help"], about["sources"], settings)


def with_preset(given: dict[str, Any]) -> dict[str, Any]:
    """``given`` on top of the preset that it names."""
    preset = load_preset(given["preset"])
    asked = given.get("tiers", [])
    if not isinstance(asked, list) or any(
        not isinstance(tier, dict) or not isinstance(tier.get("name"), str) for tier in asked
    ):
        return given  # whose types are checked next
    tiers = {tier["name"]: tier for tier in preset.settings.get("tiers", [])}
    for tier in asked:
        if tier["name"] not in tiers:
            raise ConfigError(
                f"preset {preset.name} has no tier {tier['name']!r}; its tiers are {', '.join(tiers) or 'none'}"
            )
        base = tiers[tier["name"]]
        if tier.get("capacity") == "infinite":
            base = {key: value for key, value in base.items() if key not in WITHOUT_BOUND}
        tiers[tier["name"]] = {**base, **tier}
    return {**preset.settings, **given, "tiers": list(tiers.values())}
