"""Devices by name: the presets of ``devices.toml``, a user's file laid over them, single figures on top.

:func:`load_devices` reads the files, :func:`make_device` is the factory behind every built-in
``DeviceSpec``. Figures are written in the units that people use (``read_gb_per_s``, ``read_latency_us``)
and turned exactly into bytes/s and nanoseconds; what is finer than one of those is rounded to the
slower side.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import MISSING, dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from importlib import resources
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError, reason, shorten
from kvbench.plugins import did_you_mean
from kvbench.serving.device import BASES, MEDIUMS, Device

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SHIPPED = "devices.toml"
UNLIMITED = "unlimited"
"""What to write for ``concurrent_operations`` to lift the limit of a preset."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a device as the files have it.

    ``key``    its name there, which ends in its unit; ``field`` that of :class:`Device`.
    ``scale``  how many of the field's unit one of the key's is; None: the field is a float as it stands.
    ``least``, ``most``  bounds, in the key's unit.
    ``up``     whether a remainder is rounded up (times) or down (bandwidths, sizes).
    """

    key: str
    field: str
    scale: int | None
    least: Fraction
    most: Fraction
    up: bool = False

    def parse(self, value: object, where: str) -> int | float | None:
        """``value`` in the field's unit. Raises ConfigError that starts with ``where``."""
        if value == UNLIMITED and self.field == "concurrent_operations":
            return None
        number = _exact(value)
        if number is None or not self.least <= number <= self.most:
            bounds = f"from {float(self.least):.12g} to {float(self.most):.12g}"
            raise ConfigError(f"{where}{self.key} = {_shown(value)} must be a number {bounds}")
        if self.scale is None:
            return float(number)
        return math.ceil(number * self.scale) if self.up else math.floor(number * self.scale)


_ZERO, _ONE, _BILLION, _BILLIONTH = Fraction(0), Fraction(1), Fraction(10**9), Fraction(1, 10**9)

FIGURES = (
    Figure("read_gb_per_s", "read_bandwidth_bytes_per_s", 10**9, _BILLIONTH, _BILLION),
    Figure("write_gb_per_s", "write_bandwidth_bytes_per_s", 10**9, _BILLIONTH, _BILLION),
    Figure("read_latency_us", "read_latency_ns", 1000, _ZERO, _BILLION, up=True),
    Figure("write_latency_us", "write_latency_ns", 1000, _ZERO, _BILLION, up=True),
    Figure("lookup_us", "lookup_ns", 1000, _ZERO, _BILLION, up=True),
    Figure("concurrent_operations", "concurrent_operations", 1, _ONE, _BILLION),
    Figure("rated_drive_writes_per_day", "rated_drive_writes_per_day", None, _BILLIONTH, _BILLION),
    Figure("drive_capacity_gb", "drive_capacity_bytes", 10**9, _BILLIONTH, _BILLION),
)
"""Every number of a device, in the order in which they are listed."""

CHOICES = {"medium": MEDIUMS, "basis": BASES}
KEYS = ("like", *CHOICES, "help", *(figure.key for figure in FIGURES), "sources")
"""Every key of a table of the file."""


def load_devices(extra_file: Path | None = None) -> dict[str, Device]:
    """All devices by name: the presets, then those of ``extra_file`` over and beside them.

    A table of ``extra_file`` starts from the device that its key ``like`` names, else from the one
    of its own name if there is one, else from nothing. Raises ConfigError that names the file, the
    device and the key for whatever does not fit.
    """
    devices: dict[str, Device] = {}
    shipped = resources.files("kvbench.serving").joinpath(SHIPPED).read_text(encoding="utf-8")
    _add_tables(devices, _parse_toml(shipped, SHIPPED), SHIPPED)
    if extra_file is not None:
        _add_tables(devices, _parse_toml(_read(extra_file), str(extra_file)), str(extra_file))
    return devices


def find_device(devices: Mapping[str, Device], name: str) -> Device:
    """The device of this name. Raises ConfigError with the nearest name and all of them."""
    if name not in devices:
        raise ConfigError(f"unknown device {name!r}; {did_you_mean(name, sorted(devices))}")
    return devices[name]


def make_device(name: str, /, *, devices: Mapping[str, Device] | None = None, **figures: Any) -> Device:
    """The device ``name`` of ``devices`` (None: the presets), with single ``figures`` on top.

    Figures have the keys and units of the file: ``make_device("nvme-gen4", read_gb_per_s=6.5)``.
    One that is None stays as it is.
    """
    device = find_device(load_devices() if devices is None else devices, name)
    given = {key: _from_text(value) for key, value in figures.items() if value is not None}
    _check_keys(given, tuple(figure.key for figure in FIGURES), f"device {name}: ")
    return _with_table(device, name, given, f"device {name}: ", "given as a parameter")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None


def _parse_toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None


def _add_tables(devices: dict[str, Device], tables: dict[str, Any], file: str) -> None:
    for name, table in tables.items():
        where = f"{file}, device {name}: "
        if not isinstance(table, dict):
            raise ConfigError(f"{file}: {name} = {_shown(table)} is outside of a device; a device is a table [name]")
        if not name or "," in name:
            raise ConfigError(f"{file}: the device name {name!r} must be text without commas")
        _check_keys(table, KEYS, where)
        devices[name] = _with_table(_base(devices, name, table, where), name, table, where, file)


def _base(devices: dict[str, Device], name: str, table: dict[str, Any], where: str) -> Device | None:
    if "like" not in table:
        return devices.get(name)
    like = _text(table, "like", where)
    if like not in devices:
        raise ConfigError(f"{where}like = {shorten(like)} is no device; {did_you_mean(like, sorted(devices))}")
    return devices[like]


def _with_table(base: Device | None, name: str, table: dict[str, Any], where: str, origin: str) -> Device:
    """``base`` with what ``table`` says; figures without a source of their own get ``origin`` for one."""
    settings: dict[str, Any] = {"name": name}
    for key, choices in CHOICES.items():
        if key in table:
            settings[key] = _choice(table, key, choices, where)
    if "help" in table:
        settings["help"] = _text(table, "help", where)
    given = [figure for figure in FIGURES if figure.key in table]
    settings.update((figure.field, figure.parse(table[figure.key], where)) for figure in given)
    sources = dict(base.sources) if base is not None else {}
    sources.update(dict.fromkeys((figure.key for figure in given), origin))
    sources.update(_sources(table, where))
    settings["sources"] = tuple(sources.items())
    if base is None:
        _check_complete(settings, where)
    try:
        return replace(base, **settings) if base is not None else Device(**settings)
    except ConfigError as error:
        raise ConfigError(where + str(error).removeprefix(f"device {name}: ")) from None


def _sources(table: dict[str, Any], where: str) -> dict[str, str]:
    sources = table.get("sources", {})
    if not isinstance(sources, dict):
        raise ConfigError(f"{where}sources = {_shown(sources)} must be a table of texts")
    _check_keys(sources, tuple(figure.key for figure in FIGURES), f"{where}sources: ")
    return {key: _text(sources, key, f"{where}sources: ") for key in sources}


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}unknown key {key!r}; {did_you_mean(key, known)}")


def _check_complete(settings: dict[str, Any], where: str) -> None:
    keys = {figure.field: figure.key for figure in FIGURES}
    for field in fields(Device):
        if field.default is MISSING and field.name not in settings:
            raise ConfigError(f"{where}{keys.get(field.name, field.name)} is missing (or name a preset with like = …)")


def _text(table: dict[str, Any], key: str, where: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise ConfigError(f"{where}{key} = {_shown(value)} must be text")
    return value


def _choice(table: dict[str, Any], key: str, choices: tuple[str, ...], where: str) -> str:
    value = _text(table, key, where)
    if value not in choices:
        raise ConfigError(f"{where}{key} = {shorten(value)} is not one of these; {did_you_mean(value, choices)}")
    return value


def _exact(value: object) -> Fraction | None:
    """The number that ``value`` is written as; None if it is none, infinite, or out of all bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(str(value))
    if not number.is_finite() or abs(number.adjusted()) > 20:  # a huge exponent would make a huge integer
        return None
    return Fraction(number)


def _from_text(value: object) -> object:
    """A figure from the command line, where the type is not known yet."""
    try:
        return Decimal(value) if isinstance(value, str) else value
    except InvalidOperation:
        return value


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Decimal) else shorten(value)
