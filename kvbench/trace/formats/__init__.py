"""The contract of a trace format: how a foreign file becomes version 1 batches.

A format is one file here (or in a plugin): it says whether a file looks like one of its own, what
facts its traces have, and reads rows. It does not sort, renumber ids or check the rules of the
schema; the importer does that for all formats alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kvbench.trace.rejects import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.errors import TraceError
    from kvbench.trace.formats.text import Lines
    from kvbench.trace.schema import TraceFacts

ROW_COLUMN = "x_row"
"""A uint64 column that a format may add: the line of the file that a row came from, for messages."""


@dataclass(slots=True)
class ReadLog:
    """What a format tells of a file besides its rows.

    ``skip``                a bad row is left out and counted instead of ending the import.
    ``any_origin``          times may be negative: the importer shifts them so that the earliest is 0.
    ``rejected``            the rows left out.
    ``estimated_arrivals``  rows whose arrival was worked out, not read.
    ``ignored_fields``      fields that were seen and not used, with the number of rows that had them.
    ``notes``               sentences about facts of the source that a reader of results should know.
    ``carried``             what a format remembers from one member of the source to the next, under keys of its own.
    """

    skip: bool = False
    any_origin: bool = False
    rejected: Rejected = field(default_factory=Rejected)
    estimated_arrivals: int = 0
    ignored_fields: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    carried: dict[str, Any] = field(default_factory=dict)

    def refuse(self, error: TraceError) -> None:
        """Leave out a row because of ``error``; raises it when rows may not be left out."""
        if not self.skip:
            raise error.of_one_row()
        self.rejected.add(str(error))


class TraceFormat(ABC):
    """Reads traces of one foreign format.

    ``absolute_times``  arrivals are points in time of the world, of no trace's own (Unix time, say): the
                        importer shifts those of all members so that the earliest is 0.
    ``reads_tables``    its files may be Arrow or Parquet, which are refused for other formats: they are traces already.
    """

    absolute_times: ClassVar[bool] = False
    reads_tables: ClassVar[bool] = False

    @abstractmethod
    def sniff(self, head: bytes, name: str) -> bool:
        """Whether a file looks like this format: ``head`` is its first bytes, decompressed."""

    @abstractmethod
    def facts(self) -> TraceFacts:
        """What holds for traces of this format; the source fields are filled in by the importer."""

    @abstractmethod
    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        """The rows of one member, in file order, as version 1 columns (any subset, all-null ones too).

        Called once for each member of a source, in the order of their names, with the same ``log``.
        May add the column :data:`ROW_COLUMN`. Bad rows go to ``log.refuse``. Raises TraceError.
        """
