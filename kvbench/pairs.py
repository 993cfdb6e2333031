"""Settings as people type them: ``key=value,key=value``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def key_values(pairs: Iterable[str], where: str, keys: Sequence[str] = ()) -> dict[str, str]:
    """The pairs of a text, without blanks around them; ``where`` begins the message of a ConfigError, which is
    raised for one that is no pair, and for a key that stands twice. ``keys`` are those that it names as known."""
    known = f"; keys are {', '.join(keys)}" if keys else ""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise ConfigError(f"{where}: {pair!r} is not of the form key=value{known}")
        if key in found:
            raise ConfigError(f"{where}: {key} is given twice")
        found[key] = value
    return found
