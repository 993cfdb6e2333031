"""``kvbench answer eviction`` beside the matrix of replays, and its mixes beside what they are made of."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import kvbench
from kvbench.answers.stress import Stress
from kvbench.trace.reader import open_trace
from tests.cli.answers import answered, refused, replayed, write_prompts, write_trace
from tests.cli.conftest import Cli

POLICIES = ("--policy", "lru", "--policy", "arc", "--policy", "s3-fifo")
PLAIN = ("--stress", "0", "--admission", "all")


def test_rates_and_gaps_are_those_of_the_matrix(cli: Cli, sample: Path) -> None:
    found = answered(cli, "eviction", sample, *POLICIES, "--capacity", "5%,20%", *PLAIN)
    cells = json.loads(cli("replay", sample, *POLICIES, "--capacity", "5%,20%", "--json").out)["cells"]
    rows = found["tables"]["policies"]
    assert [(row["policy"], row["capacity"]) for row in rows] == [(cell["policy"], cell["capacity"]) for cell in cells]
    for row, cell in zip(rows, cells, strict=True):
        assert row["capacity_blocks"] == cell["capacity_blocks"]
        assert row["token_rate"] == cell["rates"]["token"]
        assert row["gap_token_rate"] == pytest.approx(cell["belady_rates"]["token"] - cell["rates"]["token"])
        assert row["evicted_blocks"] == cell["evicted_blocks"]
    assert found["advice"][1] == "Best by capacity: s3-fifo at 473, lru at 1,893 blocks."


def test_the_recommendation_turns_with_the_capacity(cli: Cli, sample: Path) -> None:
    small, large = (answered(cli, "eviction", sample, *POLICIES, "--capacity", size, *PLAIN) for size in ("1%", "20%"))
    assert small["advice"][0].startswith("arc hits 30.15 % at 94 blocks, 14.01 points below the bound of Belady")
    assert large["advice"][0].startswith("lru hits 85.38 % at 1,893 blocks, 0.85 points below the bound of Belady")


def test_D03_prompts_that_come_once_flush_lru_and_not_lfu_or_slru(cli: Cli, tmp_path: Path) -> None:
    """Three blocks of room: A four times, then five others once, then A again."""
    trace = write_prompts(cli, tmp_path, [[1]] * 4 + [[at] for at in range(10, 15)] + [[1]])
    policies = ("--policy", "lru", "--policy", "lfu", "--policy", "slru")
    rows = answered(cli, "eviction", trace, *policies, "--capacity", "3", *PLAIN)["tables"]["policies"]
    assert {row["policy"]: round(10 * row["token_rate"]) for row in rows} == {"lru": 3, "lfu": 4, "slru": 4}


@pytest.mark.parametrize("kind", ["scan", "loop"])
def test_a_mix_has_all_rows_of_the_trace_and_its_share_of_stress_among_them(
    sample: Path, tmp_path: Path, kind: str
) -> None:
    stress = Stress.of(kind, 0.25, prompt_blocks=30, capacity_blocks=400, seed=3)
    for name in ("one", "two"):
        stress.write(open_trace(sample), tmp_path / f"{name}.arrow")
    assert (tmp_path / "one.arrow").read_bytes() == (tmp_path / "two.arrow").read_bytes()
    mixed = pa.ipc.open_file(tmp_path / "one.arrow").read_all()
    rows = mixed.to_pylist()
    own = [row for row in rows if row["request_id"] is not None]
    assert own == pa.ipc.open_file(sample).read_all().to_pylist()
    added = [row for row in rows if row["request_id"] is None]
    assert len(added) / len(rows) == pytest.approx(0.25, abs=0.02)
    assert {len(row["block_ids"]) for row in added} == {30}
    assert {row["input_tokens"] for row in added} == {30 * 64}
    used = Counter(block for row in added for block in row["block_ids"])
    assert not set(used) & {block for row in own for block in row["block_ids"]}
    if kind == "scan":
        assert set(used.values()) == {1}
    else:
        assert len(used) == 30 * 20, "1.5 times 400 blocks, in prompts of 30"
        assert max(used.values()) - min(used.values()) == 1
    assert mixed.column("arrival_ns").to_pylist() == sorted(mixed.column("arrival_ns").to_pylist())


def test_rates_under_stress_are_those_of_a_replay_of_the_mix(cli: Cli, sample: Path, tmp_path: Path) -> None:
    found = answered(cli, "eviction", sample, *POLICIES, "--capacity", "1%,5%,20%", "--stress", "0.3")
    rows = found["tables"]["stress"]
    assert [(row["mix"], row["policy"]) for row in rows[:4]] == [
        ("scan", "lru"), ("scan", "arc"), ("scan", "s3-fifo"), ("loop", "lru"),
    ]  # fmt: skip
    prompt = round(74_797 / 1_952)
    for kind in ("scan", "loop"):
        stress = Stress.of(kind, 0.3, prompt_blocks=prompt, capacity_blocks=473, seed=0)
        stress.write(open_trace(sample), tmp_path / f"{kind}.arrow")
        for row in rows:
            if row["mix"] == kind:
                mixed = ("--capacity", "473", "--policy", row["policy"], "--belady", "on")
                summary = replayed(cli, f"{kind}.arrow", *mixed)
                assert row["token_rate"] == summary["rates"]["token"]
                assert row["belady_token_rate"] == summary["belady_rates"]["token"]
    assert any(line.startswith("With a loop mixed in (prompts that go round in a ring") for line in found["advice"])


def test_E12_a_filter_avoids_writes_at_a_price_in_hits(cli: Cli, sample: Path) -> None:
    gpu, drive = "gpu,capacity=100", "nvme,device=nvme-gen4"
    shape = ("--policy", "lru", "--capacity", "2k", "--stress", "0", "--admission", "min-count,n=2")
    model = ("--model", "llama-3.1-8b", "--tier", gpu)
    found = answered(cli, "eviction", sample, *model, "--tier", drive, *shape)
    everything, counted = found["tables"]["admission"]
    below = [
        replayed(cli, sample, *model, "--tier", f"{drive},capacity=2k,policy=lru{more}")["tiers"][1]
        for more in ("", ",admission=min-count,admission.n=2")
    ]
    assert [row["written_bytes"] for row in (everything, counted)] == [tier["written_bytes"] for tier in below]
    avoided = below[0]["written_bytes"] - below[1]["written_bytes"]
    assert counted["avoided_share"] == avoided / below[0]["written_bytes"] > 0
    lost = below[0]["hit_blocks"] - below[1]["hit_blocks"]
    assert counted["lost_hit_blocks_per_avoided_gib"] == pytest.approx(lost / avoided * 2**30)
    assert counted["drive_writes_per_day"] < everything["drive_writes_per_day"]
    assert found["advice"][-1].startswith("Admission by min-count,n=2 avoids ")


def test_D11_what_each_tenant_hits_is_told(cli: Cli, tmp_path: Path) -> None:
    assert cli("trace", "make", "tenants,requests=600,tenants=3", "-o", "t.arrow").code == 0
    found = answered(cli, "eviction", "t.arrow", "--policy", "lru", "--policy", "arc", "--capacity", "10%", *PLAIN)
    tenants = pa.ipc.open_file(tmp_path / "t.arrow").read_all().column("tenant").to_pylist()
    hits, asked = Counter[str](), Counter[str]()
    requests = kvbench.replay(
        tmp_path / "t.arrow",
        policy="arc",
        capacity="10%",
        keep_requests=True,
        registry=kvbench.load_registry(autoload=False),
    ).requests
    assert requests is not None
    for tenant, row in zip(tenants, requests.to_pylist(), strict=True):
        hits[tenant] += row["hit_tokens"]
        asked[tenant] += row["input_tokens"]
    told = {row["tenant"]: row["token_rate"] for row in found["tables"]["tenants"] if row["policy"] == "arc"}
    assert told == {tenant: pytest.approx(hits[tenant] / asked[tenant]) for tenant in sorted(asked)}
    least = min(told, key=told.__getitem__)
    assert f"Of 3 tenants {least} hits least" in found["advice"][-1]


def test_what_an_operation_costs_is_in_no_file(cli: Cli, sample: Path, tmp_path: Path) -> None:
    arguments = ("eviction", sample, "--policy", "lru", "--capacity", "5%", *PLAIN)
    found = answered(cli, *arguments)
    assert found["wall_clock"]["ns_a_block"]["lru"] > 0
    assert cli("answer", *arguments, "-o", "one").code == cli("answer", *arguments, "-o", "two").code == 0
    written = {path.name for path in (tmp_path / "one").iterdir()}
    assert {"policies.parquet", "policies.csv", "answer.json"} <= written
    for name in written:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert "wall_clock" not in json.loads((tmp_path / "one" / "answer.json").read_text())


def test_a_loop_is_larger_than_the_caches_of_all_workers(cli: Cli, sample: Path, tmp_path: Path) -> None:
    shape = ("--workers", "4", "--policy", "lru", "--capacity", "200")
    rows = answered(cli, "eviction", sample, *shape, "--admission", "all")["tables"]["stress"]
    Stress.of("loop", 0.2, round(74_797 / 1_952), 4 * 200, seed=0).write(open_trace(sample), tmp_path / "loop.arrow")
    assert rows[1]["token_rate"] == replayed(cli, "loop.arrow", *shape)["rates"]["token"]


def test_the_middle_capacity_is_so_by_size_and_not_by_place(cli: Cli, sample: Path) -> None:
    rising, falling = (
        answered(cli, "eviction", sample, *POLICIES, *PLAIN, "--capacity", each) for each in ("1%,1k,20%", "1%,20%,1k")
    )
    assert rising["advice"][0] == falling["advice"][0]
    assert " at 1,000 blocks" in rising["advice"][0]


def test_requests_without_a_tenant_are_told_of_as_such(cli: Cli, tmp_path: Path) -> None:
    columns = {"tenant": pa.array(["a", None, "a"], pa.string())}
    trace = write_trace(tmp_path / "t.arrow", [[1], [1], [1]], columns=columns, block_tokens=16)
    found = answered(cli, "eviction", trace, "--policy", "lru", "--capacity", "2", *PLAIN)
    rates = [(row["tenant"], row["requests"], row["token_rate"]) for row in found["tables"]["tenants"]]
    assert rates == [("(none)", 1, 0), ("a", 2, 0.5)]
    assert found["advice"][-1].startswith("Of 2 tenants (none) hits least with lru, 0.00 %")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stress", "1"), "--stress 1 must be a share of at least 0 and below 1"),
        (("--policy", "lrx"), "unknown eviction policy 'lrx'"),
        (("--capacity", "infinite"), "--policy has no effect with infinite capacity"),
    ],
)
def test_what_cannot_be_compared_is_refused(cli: Cli, sample: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cli, "eviction", sample, *arguments)


def test_stress_needs_block_ids(cli: Cli) -> None:
    assert cli("trace", "make", "chat,sessions=20,ids=token", "-o", "t.arrow").code == 0
    assert "t.arrow has no block_ids; give --stress 0" in refused(cli, "eviction", "t.arrow")
    assert cli("answer", "eviction", "t.arrow", "--policy", "lru", "--stress", "0").code == 0
