"""``kvbench answer nvme`` beside replays of each stack, and sums by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.answers import answered, refused, replayed, write_prompts
from tests.cli.conftest import Cli

MODEL = ("--model", "llama-3.1-8b")
GPU = ("--tier", "gpu,capacity=256")
CPU = ("--tier", "cpu,capacity=512,device=cpu-pcie5")
NVME = ("--tier", "nvme,capacity=2k,device=nvme-gen4")
TIMED = ("--model", "Llama-3.1-70B", "--tp", "8", "--compute", "roofline", "--arrivals", "trace,rate=4")


def test_each_stack_is_the_replay_of_it_and_its_time_the_sum_of_computing_and_reading(cli: Cli, sample: Path) -> None:
    found = answered(
        cli, "nvme", sample, *MODEL, *GPU, *CPU, *NVME, "--size", "1k,2k", "--prefill-tokens-per-s", "20000"
    )
    rows = found["tables"]["stacks"]
    assert [(row["stack"], row.get("size")) for row in rows] == [
        ("gpu + cpu", None),
        ("gpu + cpu + nvme", "1k"),
        ("gpu + cpu + nvme", "2k"),
    ]
    sized = (*NVME[:1], "nvme,capacity=1k,device=nvme-gen4")
    for row, tiers in zip(rows, ((), sized, NVME), strict=True):
        summary = replayed(cli, sample, *MODEL, *GPU, *CPU, *tiers)
        assert row["token_rate"] == summary["rates"]["token"]
        below = summary["tiers"][1:]
        speeds = {"cpu": (50e9, 10e-6), "nvme": (7e9, 80e-6)}
        read_s = sum(
            tier["read_bytes"] / speeds[tier["tier"]][0] + tier["read_operations"] * speeds[tier["tier"]][1]
            for tier in below
        )
        compute_s = summary["tokens"]["input"] * (1 - summary["rates"]["token"]) / 20_000
        assert row["read_ns"] / 1e9 == pytest.approx(read_s)
        assert row["prompts_ns"] / 1e9 == pytest.approx(read_s + compute_s)
        assert row["saved_share"] == pytest.approx(1 - row["prompts_ns"] / rows[0]["prompts_ns"])
        shown = {each["tier"]: each for each in found["tables"]["tiers"] if each["size"] == row["size"]}
        for tier in summary["tiers"]:
            for name in ("hit_blocks", "token_rate", "read_bytes", "written_bytes", "drive_writes_per_day"):
                assert shown[tier["tier"]][name] == tier[name], name


def test_a_drive_pays_where_computing_is_slow_and_not_where_it_is_fast(cli: Cli, sample: Path) -> None:
    stack = (*MODEL, *GPU, *NVME)
    slow = answered(cli, "nvme", sample, *stack, "--prefill-tokens-per-s", "5000")
    fast = answered(cli, "nvme", sample, *stack, "--prefill-tokens-per-s", "500000")
    assert slow["advice"][0].startswith("Yes: nvme pays. With ")
    assert fast["advice"][0].startswith("No: nvme does not pay. With ")
    assert [row["pays"] for row in slow["tables"]["stacks"]] == [False, True, True, True, True]
    assert not any(row["pays"] for row in fast["tables"]["stacks"])
    assert [row["size"] for row in fast["tables"]["stacks"][1:]] == ["0.5k", "1k", "2k", "4k"]


def test_on_the_clock_a_drive_pays_where_the_mean_ttft_gets_shorter(cli: Cli, sample: Path) -> None:
    """Both rules of fetching are tried; the drive of 0.5 GB/s becomes the queue."""
    gpu = ("--tier", "gpu,capacity=800")
    drives = {
        speed: ("--tier", f"nvme,capacity=20k,device=nvme-gen4,device.read_gb_per_s={speed}") for speed in ("7", "0.5")
    }
    answers = {
        speed: answered(cli, "nvme", sample, *TIMED, *gpu, *drive, "--size", "20k") for speed, drive in drives.items()
    }
    for speed, found in answers.items():
        without, always, cheaper = found["tables"]["stacks"]
        assert [always["load"], cheaper["load"]] == ["always", "cheaper"]
        timed = replayed(cli, sample, *TIMED, *gpu, *drives[speed])["timed"]
        assert always["ttft_mean_ns"] == timed["ttft_ns"]["mean"]
        assert always["device_reading_share"] == timed["links"][0]["utilisation"]
        assert without["ttft_mean_ns"] == replayed(cli, sample, *TIMED, *gpu)["timed"]["ttft_ns"]["mean"]
        reads = [tier for tier in found["tables"]["tiers"] if (tier["tier"], tier["load"]) == ("nvme", "always")]
        fetched_s = timed["fetch_ns"]["mean"] * timed["fetch_ns"]["n"] / 1e9
        alone_s = reads[0]["read_bytes"] / (float(speed) * 1e9)
        operations = timed["links"][0]["operations"]
        assert always["device_wait_ns"] / 1e9 == pytest.approx((fetched_s - alone_s) / operations - 80e-6, rel=1e-3)
    assert "(load=always) the mean TTFT is 130 ms instead of 2.67 s" in answers["7"]["advice"][0]
    assert answers["0.5"]["advice"][0].startswith(
        "No: nvme does not pay. With 20k of it (load=always) the mean TTFT is"
    )


def test_E12_wear_is_told_beside_what_the_drive_is_rated_for(cli: Cli, sample: Path) -> None:
    found = answered(cli, "nvme", sample, *MODEL, *GPU, *NVME, "--size", "2k", "--prefill-tokens-per-s", "20000")
    drive = found["tables"]["tiers"][-1]
    arrivals = pa.ipc.open_file(sample).read_all().column("arrival_ns").to_pylist()
    duration_s = (arrivals[-1] - arrivals[0]) / 1e9
    assert drive["written_bytes_per_day"] == pytest.approx(drive["written_bytes"] * 86_400 / duration_s)
    writes = drive["written_bytes_per_day"] / (2_000 * 131_072 * 64)
    assert drive["drive_writes_per_day"] == pytest.approx(writes)
    wear = [line for line in found["advice"] if line.startswith("nvme is written")]
    assert f"{writes:.3g} times its capacity, and is rated for 1: it takes drives of" in wear[0]


def test_E14_a_tier_that_cycles_is_named_and_E18_called_write_only(cli: Cli, tmp_path: Path) -> None:
    """Six prompts go round through four blocks of drive below one of GPU: LRU hits none of them."""
    trace = write_prompts(cli, tmp_path, [[at % 6] for at in range(12)])
    shape = ("--block-bytes", "1MiB", "--prefill-tokens-per-s", "1000", "--tier", "gpu,capacity=1")
    small = answered(cli, "nvme", trace, *shape, "--tier", "nvme,capacity=4,device=nvme-gen4", "--size", "4,6")
    rows = {row["size"]: row for row in small["tables"]["tiers"] if row["tier"] == "nvme"}
    assert (rows["4"]["hit_blocks"], rows["4"]["flags"], rows["4"]["cause"]) == (0, "write-only", "cycling")
    assert (rows["6"]["hit_blocks"], rows["6"]["flags"]) == (6, None)
    only = answered(cli, "nvme", trace, *shape, "--tier", "nvme,capacity=4,device=nvme-gen4", "--size", "4")
    assert only["advice"][0].startswith("No: nvme does not pay.")
    assert "nvme is write-only (cycling: blocks are evicted before they are asked for again" in only["advice"][-1]


def test_E15_the_break_even_is_told_in_tokens(cli: Cli, sample: Path) -> None:
    """5 ms and 131,072 bytes a token at 10 GB/s, against 5,000 tokens/s: 26.75 tokens."""
    drive = "nvme,capacity=2k,device=nvme-gen4,device.read_latency_us=5000,device.read_gb_per_s=10"
    found = answered(
        cli, "nvme", sample, *MODEL, *GPU, "--tier", drive, "--size", "2k", "--prefill-tokens-per-s", "5000"
    )
    assert found["tables"]["tiers"][-1]["break_even_tokens"] == pytest.approx(26.75, abs=0.01)
    assert any(line.startswith("Reading from nvme beats computing from 27 tokens on;") for line in found["advice"])


def test_reuse_times_are_those_of_the_blocks_of_the_trace(cli: Cli, sample: Path) -> None:
    found = answered(cli, "nvme", sample, *MODEL, *GPU, *NVME, "--size", "2k", "--prefill-tokens-per-s", "20000")
    last: dict[int, int] = {}
    bins: Counter[int] = Counter()
    for row in pa.ipc.open_file(sample).read_all().select(["arrival_ns", "input_tokens", "block_ids"]).to_pylist():
        for block in row["block_ids"][: row["input_tokens"] // 64]:
            if block in last:
                bins[(row["arrival_ns"] - last[block]).bit_length()] += 1
            last[block] = row["arrival_ns"]
    rows = found["tables"]["reuse"]
    assert {row["below_ns"].bit_length() - 1: row["reused_blocks"] for row in rows} == dict(bins)
    age_ns = found["tables"]["tiers"][-2]["evicted_age_mean_ns"]
    later = sum(row["reused_blocks"] for row in rows if row["from_ns"] >= age_ns) / bins.total()
    assert f"at least {100 * later:.2f} % of the uses come longer after the last one" in found["advice"][2]


def test_the_stack_without_a_tier_has_none_of_what_belongs_to_it(cli: Cli, sample: Path, tmp_path: Path) -> None:
    """Its device, its link, what only a tier above it is told, and how a worker fetches from it."""
    (tmp_path / "devices.toml").write_text('[ours]\nlike = "nvme-gen4"\nread_gb_per_s = 6.5\n')
    gpu, cpu = ("--tier", "gpu,capacity=800"), "cpu,capacity=1k"
    own = ("--devices", "devices.toml", "--link", "nic,read_gb_per_s=5", "--worker", "load=always,fetches=4")
    drive = "nvme,capacity=4k,device=ours,path=nic"
    shape = (*TIMED, *gpu, "--tier", f"{cpu},promotion=none", "--tier", drive)
    found = answered(cli, "nvme", sample, *shape, *own, "--size", "4k")
    without, with_it = found["tables"]["stacks"]
    assert (
        without["ttft_mean_ns"]
        == replayed(cli, sample, *TIMED, *gpu, "--tier", cpu, "--worker", "fetches=4")["timed"]["ttft_ns"]["mean"]
    )
    assert with_it["ttft_mean_ns"] == replayed(cli, sample, *shape, *own)["timed"]["ttft_ns"]["mean"]


def test_a_share_is_tried_up_to_all_blocks_and_no_bound_as_it_is(cli: Cli, sample: Path) -> None:
    shape = (*MODEL, *GPU, "--prefill-tokens-per-s", "5000", "--tier")
    shares = answered(cli, "nvme", sample, *shape, "nvme,capacity=60%,device=nvme-gen4")["tables"]["stacks"]
    assert [row["size"] for row in shares] == [None, "15%", "30%", "60%", "100%"]
    unbounded = answered(cli, "nvme", sample, *shape, "nvme,device=nvme-gen4")
    assert unbounded["advice"][0].startswith("Yes: nvme pays. With no bound all prompts, each alone, take ")
    assert shares[-1]["token_rate"] == unbounded["tables"]["stacks"][-1]["token_rate"]


def test_two_tiers_on_trial_are_tried_alone_and_together(cli: Cli, sample: Path) -> None:
    trial = ("--trial", "cpu", "--trial", "nvme")
    found = answered(cli, "nvme", sample, *MODEL, *GPU, *CPU, *NVME, *trial, "--prefill-tokens-per-s", "20000")
    stacks = [row["stack"] for row in found["tables"]["stacks"]]
    assert stacks == ["gpu", "gpu + cpu", "gpu + nvme", "gpu + cpu + nvme"]
    assert [line.split(":")[0] for line in found["advice"] if "pay" in line] == ["Yes", "Yes"]
    best = max(found["tables"]["stacks"], key=lambda row: row["saved_share"])
    assert found["advice"][-1].startswith(f"Of all of these {best['trial']} saves most")


def test_the_smallest_size_that_saves_as_much_is_the_one_to_buy_in_whatever_order_they_are_given(
    cli: Cli, sample: Path
) -> None:
    arguments = (*MODEL, *GPU, *NVME, "--size", "infinite,60k,30k", "--prefill-tokens-per-s", "20000")
    found = answered(cli, "nvme", sample, *arguments)
    assert len({row["token_rate"] for row in found["tables"]["stacks"][1:]}) == 1, "all of them hold everything"
    assert found["advice"][0].startswith("Yes: nvme pays. With 30k of it ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*GPU,), "no tier is on trial: give a stack, the one that may be added last, as in --tier gpu,"),
        ((*GPU, "--tier", "nvme,capacity=2k"), "what it takes to read from tier nvme is not known: give it a device"),
        ((*GPU, *NVME), "whether reading pays depends on how fast prompts are computed: give --prefill-tokens-per-s"),
        ((*GPU, *NVME, "--trial", "gpu"), "--trial gpu: no such tier below the first; they are nvme"),
    ],
)
def test_what_does_not_settle_the_question_is_refused(
    cli: Cli, sample: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(cli, "nvme", sample, *MODEL, *arguments)
