"""The contract of token databases: keys depend on what a request says, and on nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from kvbench.plugins import load_registry
from kvbench.replays.parts import choose_tokens
from kvbench.specs import Spec, TokenDatabaseSpec
from kvbench.testing.parts import PartContract
from kvbench.testing.traces import small_trace
from kvbench.tokens import TokenDatabase
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from kvbench.tokens import KeyBatch


class TokenDatabaseContract(PartContract):
    """Inherit, and set ``spec_name``; or override ``make``, ``column`` (what it reads) and ``tails``."""

    kind: ClassVar[type[Spec]] = TokenDatabaseSpec

    @property
    def column(self) -> str:
        """The column of the trace that the database reads."""
        assert isinstance(self.spec, TokenDatabaseSpec)
        return self.spec.reads[0]

    @property
    def tails(self) -> bool:
        """Whether the database can key partial last blocks."""
        assert isinstance(self.spec, TokenDatabaseSpec)
        return self.spec.tails

    def build(self, *args: Any) -> Any:
        """Make the database as a replay makes it: with its hash algorithm, if it has one."""
        return choose_tokens(load_registry(), {"name": self.spec_name, **self.params}, "params").make(*args)

    def make(self, facts: TraceFacts, columns: frozenset[str]) -> TokenDatabase:
        """A fresh database for such a trace."""
        database = self.build(facts, columns)
        assert isinstance(database, TokenDatabase), f"the factory made a {type(database).__name__}"
        return database

    def fresh(self, table: pa.Table) -> TokenDatabase:
        """A fresh database for ``table``."""
        facts = TraceFacts.from_metadata(table.schema.metadata, "small trace")
        return self.make(facts, frozenset(table.schema.names))

    def keys(self, table: pa.Table, *, keep_tails: bool = False) -> KeyBatch:
        """The keys of all rows of ``table``, from a fresh database."""
        (batch,) = table.combine_chunks().to_batches()
        return self.fresh(table).keys(batch, keep_tails=keep_tails)

    def needs_tails(self) -> None:
        """Skip a test of partial last blocks where the database keys none."""
        if not self.tails:
            pytest.skip("this database keys full blocks only")

    @pytest.mark.parametrize("keep_tails", [False, True])
    def test_batches_are_well_formed(self, keep_tails: bool) -> None:
        if keep_tails:
            self.needs_tails()
        table = small_trace(self.column)
        batch = self.keys(table, keep_tails=keep_tails)
        blocks = np.diff(batch.offsets)
        assert [str(part.dtype) for part in (batch.keys, batch.offsets, batch.cacheable)] == [
            "uint64",
            "int64",
            "int32",
        ]
        assert len(blocks) == len(batch.cacheable) == table.num_rows
        assert (batch.offsets[0], batch.offsets[-1]) == (0, len(batch.keys))
        assert np.all((batch.cacheable >= 0) & (batch.cacheable <= blocks))

    def test_keys_of_a_request_are_distinct(self) -> None:
        for keys in _rows(self.keys(small_trace(self.column), keep_tails=self.tails)):
            assert len(set(keys)) == len(keys)

    def test_keeping_tails_only_adds_blocks(self) -> None:
        self.needs_tails()
        table = small_trace(self.column)
        dropped, kept = self.keys(table), self.keys(table, keep_tails=True)
        assert np.all(dropped.cacheable <= kept.cacheable)

    def test_keys_do_not_depend_on_where_batches_end(self) -> None:
        table = small_trace(self.column)
        database = self.fresh(table)
        cut = [
            keys
            for batch in table.combine_chunks().to_batches(max_chunksize=3)
            for keys in _rows(database.keys(batch, keep_tails=False))
        ]
        assert cut == _rows(self.keys(table))

    def test_later_turns_keep_the_keys_of_earlier_ones(self) -> None:
        """The blocks that a next turn of a talk repeats have the keys they had."""
        table = small_trace(self.column)
        said: dict[str, list[int]] = {}
        for session, keys in zip(table["session_id"].to_pylist(), _rows(self.keys(table)), strict=True):
            before = said.get(session, [])
            assert keys[: len(before)] == before
            said[session] = keys

    def test_tenants_share_nothing(self) -> None:
        """The same prompt of two tenants has no key in common."""
        table = small_trace(self.column).slice(0, 1).combine_chunks()
        both = pa.concat_tables([table, table]).append_column("tenant", pa.array(["a", "b"]))
        first, second = _rows(self.keys(both))
        assert first
        assert not set(first) & set(second)


def _rows(batch: KeyBatch) -> list[list[int]]:
    """The cacheable keys of each request."""
    starts = batch.offsets[:-1].tolist()
    return [
        batch.keys[start : start + count].tolist()
        for start, count in zip(starts, batch.cacheable.tolist(), strict=True)
    ]
