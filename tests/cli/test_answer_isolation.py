"""``kvbench answer isolation`` beside an LRU of plain dictionaries, and beside replays."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.answers import answered, write_trace
from tests.cli.conftest import Cli

BLOCK = 10
Row = tuple[str, list[int]]


def rows_of(seed: int, tenants: int = 3) -> list[Row]:
    """Prompts of tenants that go on from one another, and begin alike."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for at in range(300):
        tenant = draw.choices(range(tenants), [2.0**-each for each in range(tenants)])[0]
        own = [ids for name, ids in rows if name == f"t{tenant}"]
        start = draw.choice(own)[: draw.randrange(1, 8)] if own and draw.random() < 0.7 else [1, 2]
        rows.append((f"t{tenant}", [*start, *range(1_000 * (at + 1), 1_000 * (at + 1) + draw.randrange(1, 5))]))
    return rows


def write_rows(path: Path, rows: list[Row], **more: list[str | None]) -> Path:
    """A trace of requests of tenants; ``more`` are columns."""
    columns = {name: pa.array(values, pa.string()) for name, values in more.items()}
    columns["tenant"] = pa.array([tenant for tenant, _ in rows], pa.string())
    return write_trace(path, [ids for _, ids in rows], columns=columns, block_tokens=BLOCK)


@dataclass
class Lru:
    """One cache of blocks by their tenants: hits, who evicted whose, and what was stored again after."""

    capacity: int
    resident: OrderedDict[tuple[str, int], None] = field(default_factory=OrderedDict)
    gone: dict[tuple[str, int], str] = field(default_factory=dict)
    hits: Counter[str] = field(default_factory=Counter)
    evicted: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)

    def serve(self, tenant: str, ids: list[int]) -> None:
        keys = [(tenant, each) for each in ids]
        self.hits[tenant] += next((at for at, key in enumerate(keys) if key not in self.resident), len(keys))
        new = [key for key in keys if key not in self.resident]
        for key in list(self.resident):
            if len(self.resident) + len(new) <= self.capacity:
                break
            if key not in keys:
                del self.resident[key]
                self.evicted[key[0], tenant] += 1
                self.gone[key] = tenant
        for key in reversed(keys):
            if key not in self.resident and key in self.gone:
                self.lost[tenant, self.gone[key]] += 1
            self.resident[key] = None
            self.resident.move_to_end(key)
        for name, _ in self.resident:
            self.held[name] += 1


@pytest.mark.parametrize("seed", [1, 2])
def test_hits_evictions_and_room_of_each_tenant_are_those_of_a_plain_lru(cli: Cli, tmp_path: Path, seed: int) -> None:
    rows = rows_of(seed)
    cache = Lru(60)
    for tenant, ids in rows:
        cache.serve(tenant, ids)
    found = answered(cli, "isolation", write_rows(tmp_path / "t.arrow", rows), "--capacity", "60")["tables"]
    for row in found["tenants"]:
        name = row["tenant"]
        asked = sum(len(ids) for tenant, ids in rows if tenant == name)
        assert row["input_tokens"] == BLOCK * asked
        assert row["token_rate"] == pytest.approx(cache.hits[name] / asked)
        assert row["mean_blocks"] == pytest.approx(cache.held[name] / len(rows))
        others = [other for other in cache.hits if other != name]
        assert row["evicted_by_others_blocks"] == sum(cache.evicted[name, other] for other in others)
        assert row["lost_to_others_blocks"] == sum(cache.lost[name, other] for other in others)
        assert row["evicted_of_others_blocks"] == sum(cache.evicted[other, name] for other in others)
    pairs = [row for row in found["evicted-by"] if row["eviction"] == "lru"]
    assert {(row["tenant"], row["evicted_by"]): row["evicted_blocks"] for row in pairs} == cache.evicted
    assert {(row["tenant"], row["evicted_by"]): row["lost_blocks"] for row in pairs} == cache.lost
    assert sum(cache.lost.values()) > 50


def test_each_rule_is_a_replay(cli: Cli, tmp_path: Path) -> None:
    trace = write_rows(tmp_path / "t.arrow", rows_of(3))
    rules = {
        (row["rule"], row["eviction"]): row
        for row in answered(cli, "isolation", trace, "--capacity", "80")["tables"]["rules"]
    }
    for rule, options in (
        (("apart", "lru"), ["--policy", "lru"]),
        (("apart", "quotas"), ["--policy", "tenant-lru"]),
        (("first block shared", "lru"), ["--policy", "lru", "--shared-blocks", "1"]),
        (("first 4 blocks shared", "lru"), ["--policy", "lru", "--shared-blocks", "4"]),
        (("all shared", "lru"), ["--policy", "lru", "--shared-blocks", "1000000"]),
    ):
        summary = json.loads(cli("replay", trace, "--capacity", "80", *options, "--json").out)["summary"]
        assert rules[rule]["token_rate"] == pytest.approx(summary["rates"]["token"]), rule
        assert rules[rule]["hit_blocks"] == summary["blocks"]["hit"], rule
        assert rules[rule]["infinite_token_rate"] == summary["infinite_rates"]["token"], rule
    some = answered(cli, "isolation", trace, "--capacity", "80", "--shared-blocks", "3")
    assert [row["shared_blocks"] for row in some["tables"]["rules"]] == [0, 0, 3, None]
    assert some["config"]["shared_blocks"] == [3]
    best = rules["all shared", "lru"]["token_rate"]
    assert all(row["cost_rate"] == pytest.approx(best - row["token_rate"]) for row in rules.values())


def test_B05_three_tenants_that_share_six_of_ten_blocks_save_twelve(cli: Cli, tmp_path: Path) -> None:
    rows = [(f"t{at}", [*range(6), *range(100 * at, 100 * at + 4)]) for at in range(1, 4)]
    trace = write_rows(tmp_path / "t.arrow", rows)
    found = answered(cli, "isolation", trace, "--capacity", "100", "--shared-blocks", "6")
    assert [(row["rule"], row["eviction"], row["hit_blocks"]) for row in found["tables"]["rules"]] == [
        ("apart", "lru", 0),
        ("apart", "quotas", 0),
        ("first 6 blocks shared", "lru", 12),
        ("all shared", "lru", 12),
    ]
    assert found["advice"][0].startswith(
        "Keeping 3 tenants apart costs 40.00 points: 0.00 % of input tokens hit in 100"
    )
    assert found["advice"][1].startswith("With the first 6 blocks shared they hit 40.00 %: that saves 40.00 points")


def test_D11_a_quota_saves_the_quiet_tenant_from_the_noisy_one(cli: Cli, tmp_path: Path) -> None:
    rows: list[Row] = [("quiet", [1, 2]), *(("noisy", [key]) for key in range(10, 20)), ("quiet", [1, 2])]
    trace = write_rows(tmp_path / "t.arrow", rows)
    found = answered(cli, "isolation", trace, "--capacity", "4", "--quota", "quiet=2", "--quota", "noisy=2")
    tenants = {row["tenant"]: row for row in found["tables"]["tenants"]}
    assert (tenants["quiet"]["token_rate"], tenants["quiet"]["quota_token_rate"]) == (0, 0.5)
    assert (tenants["quiet"]["evicted_by_others_blocks"], tenants["quiet"]["lost_to_others_blocks"]) == (2, 2)
    assert tenants["noisy"]["peak_blocks_with_quota"] == 2
    assert found["advice"][-2].startswith("The noisiest neighbour under LRU is noisy: ")
    assert "quiet goes from 0.00 % to 50.00 %" in found["advice"][-1]
    with_too_much = cli("answer", "isolation", trace, "--capacity", "4", "--quota", "quiet=3", "--quota", "noisy=2")
    assert with_too_much.code == 2
    assert "quotas of 5 blocks in all are more than its capacity of 4" in with_too_much.err


def test_B02_hits_are_told_by_adapter_and_none_are_of_another(cli: Cli, tmp_path: Path) -> None:
    rows: list[Row] = [("x", [1, 2])] * 4 + [("y", [1, 2])] * 2
    adapters = ["a", "b", None, "a", "a", "a"]
    trace = write_rows(tmp_path / "t.arrow", rows, adapter=adapters)
    found = answered(cli, "isolation", trace, "--capacity", "100")["tables"]
    by_adapter = {row["adapter"]: (row["requests"], row["token_rate"]) for row in found["by-adapter"]}
    assert by_adapter == {"a": (4, 0.5), "b": (1, 0), "(none)": (1, 0)}
    rules = {(row["rule"], row["eviction"]): row["hit_blocks"] for row in found["rules"]}
    # Adapters stay apart whatever tenants share: only the two of y with adapter a find what x left.
    assert (rules["apart", "lru"], rules["all shared", "lru"]) == (4, 6)


def test_B03_another_version_of_an_adapter_hits_nothing_of_the_one_before(cli: Cli, tmp_path: Path) -> None:
    rows: list[Row] = [("x", [1, 2]), ("x", [1, 2]), ("y", [1, 2])]
    trace = write_rows(tmp_path / "t.arrow", rows, adapter=["a@1", "a@2", "a@2"])
    found = answered(cli, "isolation", trace, "--capacity", "100")["tables"]
    assert {row["adapter"]: row["token_rate"] for row in found["by-adapter"]} == {"a@1": 0, "a@2": 0}
    rules = {(row["rule"], row["eviction"]): row["hit_blocks"] for row in found["rules"]}
    assert (rules["apart", "lru"], rules["all shared", "lru"]) == (0, 2)


def test_a_trace_without_tenants_is_told_what_to_do(cli: Cli, sample: Path, tmp_path: Path) -> None:
    run = cli("answer", "isolation", sample)
    assert run.code == 2
    assert "has no column tenant, so nobody is kept apart; name one on import" in run.err
    alone = write_rows(tmp_path / "t.arrow", [("x", [1])] * 3)
    run = cli("answer", "isolation", alone, "--capacity", "2")
    assert run.code == 2
    assert "all requests of" in run.err
    assert "are of one tenant, so there is nobody to keep apart" in run.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--capacity", "infinite"], "--capacity infinite: nothing is evicted"),
        (["--quota", "t0"], "--quota: 't0' is not of the form key=value"),
        (["--quota", "t9=4"], "quota of t9: no request of the trace is of this tenant"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    run = cli("answer", "isolation", write_rows(tmp_path / "t.arrow", rows_of(4)), *arguments)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
