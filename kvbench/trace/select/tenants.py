"""Traces of several services as those of so many tenants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.trace.reader import Trace

TENANT = "tenant"


def tenant_names(traces: Sequence[Trace]) -> list[str]:
    """The tenant of each trace: the name of its file without the ending. Raises ConfigError where two are one."""
    names = [Path(trace.name).stem for trace in traces]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ConfigError(f"--name-tenants: two TRACEs would be the tenant {twice!r}; rename one of the files")
    return names


def with_tenant(batch: pa.RecordBatch, tenant: str) -> pa.RecordBatch:
    """``batch`` with ``tenant`` in the rows that have none; it has the column."""
    at = batch.schema.get_field_index(TENANT)
    return batch.set_column(at, batch.schema.field(at), pc.fill_null(batch.column(at), tenant))
