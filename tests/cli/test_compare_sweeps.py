"""Sweeps beside each other: which cells differ, in what, and by how much."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.results.parquet import METADATA_KEY
from tests.cli.conftest import Cli

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
VARY: dict[str, list[Any]] = {"capacity": [100, 1000], "policy": ["lru", "arc"]}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps") / "base.parquet"
    kvbench.sweep(CHAT, vary=VARY, method="replay", output=str(path))
    return path


def changed(path: Path, into: Path, row: int, change: Callable[[dict[str, Any]], None]) -> Path:
    """The same sweep with the summary of one cell changed."""
    table = pq.read_table(path)
    summaries = table["summary"].to_pylist()
    summary = json.loads(summaries[row])
    change(summary)
    summaries[row] = json.dumps(summary)
    at = table.schema.get_field_index("summary")
    write(table.set_column(at, table.schema.field(at), pa.array(summaries)), base=path, into=into)
    return into


def write(table: pa.Table, *, base: Path, into: Path) -> None:
    """Write the table of a sweep with the manifest of another."""
    key = METADATA_KEY.encode()
    pq.write_table(table.replace_schema_metadata({key: pq.read_metadata(base).metadata[key]}), into)


def one_percent_worse(summary: dict[str, Any]) -> None:
    summary["rates"]["token"] *= 0.99


def test_the_same_sweep_twice_is_equal_however_its_cells_were_found(base: Path, tmp_path: Path) -> None:
    again, curves = tmp_path / "again.parquet", tmp_path / "curves.parquet"
    kvbench.sweep(CHAT, vary=VARY, method="replay", output=str(again))
    assert again.read_bytes() == base.read_bytes()
    kvbench.sweep(CHAT, vary=VARY, output=str(curves))
    for other in (again, base, curves):
        found = kvbench.compare_sweeps(base, other)
        assert found.equal, other
        assert list(found.cells)[1] == "capacity=100, policy=arc"
        assert found.differing(1) == []
    assert "curve" in pq.read_table(curves)["method"].to_pylist()


def test_a_planted_regression_of_one_percent_is_found_in_its_cell(
    cli: Cli,
    base: Path,
    tmp_path: Path,
) -> None:
    changed(base, tmp_path / "worse.parquet", 2, one_percent_worse)
    run = cli("compare", base, "worse.parquet", "--fail-if", "token_rate:-0.9%", "-o", "figures.csv")
    assert (run.code, run.err) == (3, "")
    lines = run.out.splitlines()
    most = lines[next(at for at, line in enumerate(lines) if line.startswith("where most")) + 1]
    assert most.startswith("capacity=1000, policy=lru   token rate")
    assert most.endswith("-1.00 %")
    assert "worse.parquet: 1 of 4 cells differ" in lines
    assert [line[:70] for line in lines if line.startswith("failed: ")] == [
        "failed: capacity=1000, policy=lru of worse.parquet breaks token_rate:-0.9%"[:70]
    ]
    assert cli("compare", base, "worse.parquet", "--fail-if", "token_rate:-1.1%").code == 0
    document = json.loads(cli("compare", base, "worse.parquet", "--json").out)
    assert [each["cell"] for each in document["cells"] if not each["equal"]] == ["capacity=1000, policy=lru"]
    assert not document["equal"]
    header = (tmp_path / "figures.csv").read_text().splitlines()[0]
    assert header == '"cell","run","reference","figure","value","reference_value","delta","share"'


def test_cells_that_one_sweep_has_alone_make_them_unequal(base: Path, tmp_path: Path) -> None:
    fewer = tmp_path / "fewer.parquet"
    kvbench.sweep(CHAT, vary=VARY | {"capacity": [100, 300]}, method="replay", output=str(fewer))
    found = kvbench.compare_sweeps(base, fewer)
    assert not found.equal
    assert found.differing(1) == []
    assert found.left_over == (
        ("capacity=1000, policy=lru", "capacity=1000, policy=arc"),
        ("capacity=300, policy=lru", "capacity=300, policy=arc"),
    )


def test_a_cell_that_fails_in_one_sweep_alone_differs(base: Path, tmp_path: Path) -> None:
    table = pq.read_table(base)
    for name, value in (("status", "failed"), ("error", "no room"), ("summary", None)):
        values = table[name].to_pylist()
        values[0] = value
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, pa.string()))
    write(table, base=base, into=tmp_path / "failed.parquet")
    found = kvbench.compare_sweeps(base, tmp_path / "failed.parquet")
    assert found.differing(1) == ["capacity=100, policy=lru"]
    assert found.cells["capacity=100, policy=lru"].texts["status"] == ("done", "failed")
    with pytest.raises(ConfigError, match="not all runs have"):
        found.broken_limits(["token_rate:-1%"])
    assert kvbench.compare_sweeps(tmp_path / "failed.parquet", tmp_path / "failed.parquet").equal


def test_what_cannot_be_compared_is_refused(cli: Cli, base: Path, tmp_path: Path) -> None:
    other, run, workers = (tmp_path / f"{name}.parquet" for name in ("other", "run", "workers"))
    assert cli("trace", "make", "chat,sessions=3", "-o", "few.arrow").code == 0
    kvbench.sweep(tmp_path / "few.arrow", vary=VARY, method="replay", output=str(other))
    kvbench.sweep(CHAT, vary={"workers": [1, 2]}, capacity=100, output=str(workers))
    kvbench.replay(CHAT, capacity=100, output=str(run))
    with pytest.raises(ConfigError, match="is of another trace than"):
        kvbench.compare_sweeps(base, other)
    assert not kvbench.compare_sweeps(base, other, different_traces=True).equal
    with pytest.raises(ConfigError, match=r"no cell is in all of the sweeps: .*varies capacity, policy; .*workers"):
        kvbench.compare_sweeps(base, workers)
    with pytest.raises(ConfigError, match=r"run\.parquet is no sweep"):
        kvbench.compare_sweeps(base, run)
    with pytest.raises(ConfigError, match="needs two runs or more"):
        kvbench.compare_sweeps(base)
