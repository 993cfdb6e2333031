"""Everything kvbench raises on purpose.

KvbenchError
├── ConfigError       a setting is wrong, unknown, or has no effect in the chosen mode
├── TraceError        a trace file or one of its rows breaks a rule of the schema
├── OutputError       a result cannot be written where it was asked for
├── ArgumentError     an argument of a library call breaks a rule (a ValueError, too)
└── PluginError       a plugin is missing, clashes with another, or breaks its contract
    └── PolicyError   an eviction or router policy broke its contract during a replay

Each message is one sentence that carries the offending value and what to do about it. The
command line prints it after ``error:`` and exits with :data:`EXIT_BAD_INPUT`; the library lets
it propagate.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED_CELLS = 1
"""A sweep is done, and some of its cells have failed."""
EXIT_BAD_INPUT = 2
EXIT_REGRESSION = 3
"""A figure is worse than ``kvbench compare --fail-if`` allows."""
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class KvbenchError(Exception):
    """Base of every error that kvbench raises on purpose."""


class ConfigError(KvbenchError):
    """A setting is wrong, unknown, or has no effect in the chosen mode."""


class TraceError(KvbenchError):
    """A trace file, or one of its rows, breaks a rule of the schema.

    ``can_be_skipped``  it is of one row, which ``on_error="skip"`` would leave out.
    """

    can_be_skipped = False

    def of_one_row(self) -> TraceError:
        """This error, as one that can be skipped."""
        self.can_be_skipped = True
        return self

    @classmethod
    def at(cls, where: str, row: int | None, field: str, value: object, rule: str) -> TraceError:
        """The error for one value: ``where`` is the file (or ``-``), ``row`` counts from 1."""
        place = where if row is None else f"{where}, row {row}"
        return cls(f"{place}, {field} = {shorten(value)}: {rule}")


class OutputError(KvbenchError):
    """A result cannot be written where it was asked for."""


class ArgumentError(KvbenchError, ValueError):
    """An argument of a library call breaks a rule: tokens out of range, a mask that does not fit."""


class PluginError(KvbenchError):
    """A plugin is missing, clashes with another, or breaks its contract."""


class PolicyError(PluginError):
    """An eviction or router policy broke its contract during a replay."""


def one_line(error: BaseException) -> str:
    """The kind and the message of an error, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def reason(error: OSError | ValueError) -> str:
    """What the system says of a file, without the file's name and the error's number."""
    return getattr(error, "strerror", None) or str(error)


def shorten(value: object, limit: int = 60) -> str:
    """``repr(value)``, cut in the middle when it is longer than ``limit`` characters."""
    text = repr(value)
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
