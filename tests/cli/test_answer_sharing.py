"""``kvbench answer sharing`` beside replays of private caches and of a pool, and copies counted by hand."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.answers import answered, refused, replayed, write_prompts
from tests.cli.conftest import Cli


@pytest.mark.parametrize("router", ["round-robin", "random", "least-loaded"])
@pytest.mark.parametrize("blocks", [100, 300])
def test_J07_a_pool_hits_no_less_than_private_caches_as_large_as_it(
    cli: Cli, sample: Path, router: str, blocks: int
) -> None:
    found = answered(cli, "sharing", sample, "--workers", "4", "--capacity", str(blocks), "--router", router)
    private, pool = found["tables"]["caches"]
    assert (private["caches"], pool["caches"]) == ("private", "one pool")
    assert private["blocks_in_all"] == pool["blocks_in_all"] == 4 * blocks
    local = replayed(cli, sample, "--workers", "4", "--capacity", str(blocks), "--router", router)
    alone = replayed(cli, sample, "--capacity", str(4 * blocks))
    assert private["token_rate"] == local["rates"]["token"]
    assert pool["token_rate"] == alone["rates"]["token"] >= private["token_rate"]
    assert private["other_worker_blocks"] == local["misses"]["other_worker"]
    assert found["advice"][0].startswith(f"Share: of {4 * blocks:,} blocks in all, one pool ({router}) lets ")


def test_shares_of_the_distinct_blocks_may_be_more_than_all_of_them_together(cli: Cli, sample: Path) -> None:
    private, pool = answered(cli, "sharing", sample, "--workers", "2", "--capacity", "60%", "--router", "random")[
        "tables"
    ]["caches"]
    assert private["blocks_each"] == int(0.6 * 9_466)
    assert pool["blocks_each"] == 2 * private["blocks_each"] > 9_466


def test_copies_are_those_of_naive_caches(cli: Cli, sample: Path) -> None:
    """Three LRU caches in turn, in Python."""
    workers, capacity = 3, 200
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(workers)]
    for at, row in enumerate(pa.ipc.open_file(sample).read_all().select(["input_tokens", "block_ids"]).to_pylist()):
        cache, blocks = caches[at % workers], row["block_ids"][: row["input_tokens"] // 64][:capacity]
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    resident = [block for cache in caches for block in cache]
    shape = ("--workers", str(workers), "--capacity", str(capacity), "--router", "round-robin")
    private, pool = answered(cli, "sharing", sample, *shape)["tables"]["caches"]
    assert private["duplication"] == len(resident) / len(set(resident)) > 1
    assert pool["duplication"] == 1


def test_private_caches_stay_where_a_router_keeps_prompts_together(cli: Cli, tmp_path: Path) -> None:
    """Two prompts in turn: round robin by chance sends each to its own worker."""
    trace = write_prompts(cli, tmp_path, [[at % 2] for at in range(20)])
    found = answered(cli, "sharing", trace, "--workers", "2", "--capacity", "1", "--router", "round-robin")
    private, pool = found["tables"]["caches"]
    assert private["token_rate"] == pool["token_rate"] == 18 / 20
    assert found["advice"][0].startswith("Stay private: of 2 blocks in all, one pool (round-robin) lets 90.00 % ")


def test_a_router_that_heaps_prompts_on_one_worker_is_nothing_to_measure_a_pool_by(cli: Cli, tmp_path: Path) -> None:
    """Two families with an opening in common: all that max-prefix hits it hits on one worker, so that a router which
    looks at the load, too, is what private caches can do."""
    trace = write_prompts(cli, tmp_path, [[0, 1 + at % 4, 100 + at] for at in range(400)])
    found = answered(cli, "sharing", trace, "--workers", "4", "--capacity", "40")
    rows = {row["router"]: row for row in found["tables"]["caches"] if row["caches"] == "private"}
    assert set(rows) == {"round-robin", "max-prefix", "pstack-loadaware"}
    assert rows["max-prefix"]["max_over_mean_requests"] == 4
    assert "(max-prefix, " not in found["advice"][0]
    uneven = "send the busiest worker 4.00 times the mean: too uneven to measure a pool by."
    assert [line.endswith(uneven) for line in found["advice"]].count(True) == 1


def test_E13_what_one_host_stored_hits_in_the_pool_and_crosses_the_network(cli: Cli, tmp_path: Path) -> None:
    """One prompt of two blocks, four times, on two hosts of two workers: of the six reads and two writes half cross."""
    trace = write_prompts(cli, tmp_path, [[1, 2]] * 4)
    shape = ("--workers", "4", "--workers-per-host", "2", "--capacity", "2", "--block-bytes", "1MiB")
    rows = answered(cli, "sharing", trace, *shape, "--router", "round-robin")["tables"]["caches"]
    assert [(row["caches"], row["stores"], row["hit_blocks"]) for row in rows] == [
        ("private", 4, 0),
        ("one a host", 2, 4),
        ("one pool", 1, 6),
    ]
    assert [row["duplication"] for row in rows] == [4, 2, 1]
    assert [row["across_bytes"] for row in rows] == [0, 0, 4 * 2**20]
    assert rows[2]["across_bytes_per_s"] == pytest.approx(4 * 2**20 / 3)


def test_on_the_clock_a_slow_network_turns_the_answer(cli: Cli, sample: Path) -> None:
    shape = (
        *(
            "--workers",
            "4",
            "--router",
            "round-robin",
            "--model",
            "Llama-3.1-70B",
            "--tp",
            "8",
            "--compute",
            "roofline",
        ),
        *("--arrivals", "trace,rate=4", "--tier", "gpu,capacity=800", "--tier", "cpu,capacity=800,device=cpu-pcie5"),
    )
    fast, slow = (answered(cli, "sharing", sample, *shape, "--pool-device", device) for device in ("rdma-400g", "s3"))
    assert fast["advice"][0].startswith("Share: ")
    assert slow["advice"][0].startswith("Stay private: ")
    private, pool = slow["tables"]["caches"]
    tiers = ("--tier", "cpu,capacity=3200,device=s3,scope=cluster")
    timed = replayed(cli, sample, *shape[:-2], *tiers)["timed"]
    assert pool["ttft_mean_ns"] == timed["ttft_ns"]["mean"] > private["ttft_mean_ns"]
    assert pool["reading_share"] == timed["links"][0]["utilisation"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--capacity", "100"), "one worker has nobody to share with; give --workers"),
        (("--workers", "2"), "tier cache has no bound, so that private caches hold all; give it a capacity"),
        (
            ("--workers", "2", "--tier", "gpu,capacity=9", "--tier", "dfs,capacity=99,scope=cluster"),
            "tier dfs of scope cluster is shared; give it as it is of one worker",
        ),
        (
            ("--workers", "2", "--capacity", "100", "--pool-device", "rdma-100g"),
            "--pool-device has no effect without --compute",
        ),
        (("--workers", "5", "--capacity", "9", "--workers-per-host", "2"), "= 2 does not divide 5 workers evenly"),
        (("--workers", "2", "--capacity", "9", "--workers-per-host", "2"), "--workers-per-host = 2 leaves one host"),
    ],
)
def test_what_cannot_be_shared_is_refused(cli: Cli, sample: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(cli, "sharing", sample, *arguments)
