"""Traces: schema, reading, checking, writing, import of foreign formats, synthetic workloads.

Importing this package loads neither Arrow nor NumPy; its names do, when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbench.trace.anonymize import AnonymizeReport, IdKey, anonymize_trace, read_key
    from kvbench.trace.formats import TraceFormat
    from kvbench.trace.importer import ImportReport, guess_format, import_trace
    from kvbench.trace.reader import Trace, open_trace
    from kvbench.trace.rejects import Rejected
    from kvbench.trace.schema import SCHEMA_VERSION, TraceFacts
    from kvbench.trace.sources import TraceBytes
    from kvbench.trace.synth import Workload
    from kvbench.trace.writer import TraceWriter

__all__ = [
    "SCHEMA_VERSION",
    "AnonymizeReport",
    "IdKey",
    "ImportReport",
    "Rejected",
    "Trace",
    "TraceBytes",
    "TraceFacts",
    "TraceFormat",
    "TraceWriter",
    "Workload",
    "anonymize_trace",
    "guess_format",
    "import_trace",
    "open_trace",
    "read_key",
]

_HOMES = {
    "SCHEMA_VERSION": "schema",
    "AnonymizeReport": "anonymize",
    "IdKey": "anonymize",
    "ImportReport": "importer",
    "Rejected": "rejects",
    "Trace": "reader",
    "TraceBytes": "sources",
    "TraceFacts": "schema",
    "TraceFormat": "formats",
    "TraceWriter": "writer",
    "Workload": "synth",
    "anonymize_trace": "anonymize",
    "guess_format": "importer",
    "import_trace": "importer",
    "open_trace": "reader",
    "read_key": "anonymize",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
