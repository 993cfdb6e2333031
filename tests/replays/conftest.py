"""The merged WEKA trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.weka import merged_trace

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


@pytest.fixture(scope="module", params=[True, False], ids=["dense", "hash"])
def weka(request: pytest.FixtureRequest, shared: Path) -> pa.Table:
    """The merged WEKA trace, with dense ids and with the file's own."""
    return merged_trace(shared / "traces/kv-cache-tester/weka_traces_710_rle.jsonl.gz", dense=request.param)
