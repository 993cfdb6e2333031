"""User report J08: the traces that people have become files of one documented schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.foreign import FILES, jsonl

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

IDS = {"hash_ids": [1, 2]}
TURN = {"t": 0.0, "type": "n", "in": 128, "out": 1, **IDS}
REPLAY = {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": [1, 2]}
DYNAMO = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1_700_000_000_000}
SOURCES = {
    "mooncake": FILES["mooncake"][1],
    "bailian": jsonl({"chat_id": 1, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 32, **IDS}),
    "weka": jsonl({"id": "c", "block_size": 64, "hash_id_scope": "local", "requests": [TURN]}),
    "azure": FILES["azure 2023"][1],
    "burstgpt": FILES["burstgpt"][1],
    "lmcache-lookup": FILES["lmcache-lookup"][1],
    "lmcache-chunk-hashes": FILES["lmcache-chunk-hashes"][1],
    "dynamo-requests": jsonl(DYNAMO | {"request": {"request_id": "a", "output_tokens": 4, "replay": REPLAY}}),
}


def documented() -> dict[str, str]:
    """The columns of a trace and their types, as the README has them."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    table = readme[readme.index("## Traces") :].split("[[[end]]]")[0]
    return dict(re.findall(r"^\| `(\w+)`(?: \(required\))? \| ([\w<>]+) \|", table, re.MULTILINE))


@pytest.mark.parametrize("name", SOURCES)
def test_J08_a_source_is_told_by_its_look_and_becomes_the_documented_schema(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    (tmp_path / "source").write_bytes(SOURCES[name])
    done = cli("trace", "import", "source", "-o", "trace.arrow")
    assert (done.code, f": {name} (guessed), " in done.out) == (0, True), done
    with pa.ipc.open_file(tmp_path / "trace.arrow") as file:
        types = {field.name: re.sub(r"<\w+: ", "<", str(field.type)) for field in file.schema}
        rows = file.read_all().num_rows
    assert types.items() <= documented().items()
    assert {"arrival_ns", "input_tokens"} <= types.keys()
    assert cli("replay", "trace.arrow", "-o", "requests.parquet").code == 0
    assert pq.read_table(tmp_path / "requests.parquet").num_rows == rows
