"""What the contracts draw from: requests that share prefixes, and a valid trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, find, given, settings

from kvbench.testing import requests, small_trace
from kvbench.trace import open_trace

if TYPE_CHECKING:
    from kvbench.testing import Keys


@given(asked=requests(max_requests=10, max_blocks=6))
def test_shared_key_means_shared_prefix(asked: list[Keys]) -> None:
    """Two requests that share a key share all keys up to it."""
    parents: dict[int, int | None] = {}
    for keys in asked:
        assert 1 <= len(keys) <= 6
        path = keys.tolist()
        assert len(set(path)) == len(path)
        for parent, key in zip([None, *path[:-1]], path, strict=True):
            assert parents.setdefault(key, parent) == parent


def test_requests_can_share_long_prefixes() -> None:
    """Sharing is drawn, not left to chance."""
    quick = settings(phases=[Phase.generate], database=None)
    found = find(
        requests(),
        lambda asked: any(a is not b and len(a) > 5 and a[5] in b for a in asked for b in asked),
        settings=quick,
    )
    assert len(found) >= 2


@pytest.mark.parametrize("ids", ["block_ids", "token_ids"])
def test_small_trace_is_valid(ids: str) -> None:
    """The reader takes every row, and the same table comes at each call."""
    table = small_trace(ids)
    trace = open_trace(table)
    assert trace.ids == ids
    assert sum(batch.num_rows for batch in trace.batches()) == table.num_rows > 10
    assert small_trace(ids).equals(table, check_metadata=True)
