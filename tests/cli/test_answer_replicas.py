"""``kvbench answer replicas`` beside replays of each number of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.answers import answered, refused, replayed, write_prompts
from tests.cli.conftest import Cli

SERVICE = ("--model", "Llama-3.1-8B", "--compute", "roofline", "--capacity", "6k", "--slo", "ttft=500ms,tpot=25ms")
ROUTER = ("--router", "pstack-loadaware")


def test_every_number_is_the_replay_of_it_and_the_fewest_that_hold_the_slo_win(cli: Cli, sample: Path) -> None:
    load = (*SERVICE, "--arrivals", "trace,rate=40")
    found = answered(cli, "replicas", sample, *load, *ROUTER, "--workers", "1,4..6", "--window", "warmup=5%")
    rows = found["tables"]["replicas"]
    assert [row["workers"] for row in rows] == [1, 4, 5, 6]
    for row in rows:
        router = ROUTER if row["workers"] > 1 else ()
        summary = replayed(cli, sample, *load, *router, "--workers", str(row["workers"]), "--window", "warmup=5%")
        timed = summary["timed"]
        assert row["slo_share"] == timed["goodput"]["share_of_arrived"]
        assert row["goodput_requests_per_s"] == timed["goodput"]["requests_per_s"]
        assert row["ttft_mean_ns"] == timed["ttft_ns"]["mean"]
        parts = [row[f"{part}_mean_ns"] for part in ("queue", "fetch", "prefill")]
        assert sum(parts) == pytest.approx(row["ttft_mean_ns"])
        assert row["verdict"] == timed["verdict"]["state"]
        assert row["holds"] == (row["slo_share"] >= 0.99)
        if row["workers"] == 5:
            told = [(each["requests"], each["busy_share"]) for each in found["tables"]["workers"]]
            busy = timed["workers"]["each"]
            assert told == [
                (each["requests"], busy[at]["utilisation"]) for at, each in enumerate(summary["workers"]["each"])
            ]
            computed = summary["tokens"]["input"] - sum(each["hit_tokens"] for each in summary["workers"]["each"])
            assert sum(each["computed_tokens"] for each in found["tables"]["workers"]) == computed, "warm-up left out"
    assert found["advice"][0].startswith("5 replicas hold TTFT ≤ 500ms, TPOT ≤ 25ms for 100.00 % of the requests; 4 do")
    one = rows[0]["requests_per_s"]
    assert f"1 replica is saturated (OVERLOADED): {one:.3g} requests/s are what one serves." in found["advice"]


@pytest.mark.parametrize(("scale", "share", "enough"), [("0.5", "99%", 3), ("1", "99%", 5), ("1", "95%", 4)])
def test_less_load_or_a_lower_share_needs_fewer(cli: Cli, sample: Path, scale: str, share: str, enough: int) -> None:
    shape = ("--arrivals", "trace,rate=40", *ROUTER, "--workers", "2..5", "--load-scale", scale, "--share", share)
    found = answered(cli, "replicas", sample, *SERVICE, *shape)
    assert found["advice"][0].startswith(f"{enough} replicas hold ")
    assert any(line.startswith("The first 10 % of the requests, which meet cold caches,") for line in found["advice"])


def test_with_seeds_the_low_end_of_the_interval_must_hold(cli: Cli, sample: Path) -> None:
    load = (*SERVICE, "--arrivals", "trace,rate=20,jitter=1s", "--router", "random", "--window", "warmup=10%")
    found = answered(cli, "replicas", sample, *load, "--workers", "3,4", "--seeds", "3", "--share", "80%")
    for row in found["tables"]["replicas"]:
        run = cli("replay", sample, *load, "--workers", str(row["workers"]), "--seeds", "3", "--json")
        figure = json.loads(run.out)["figures"]["timed.goodput.share_of_arrived"]
        assert [row["slo_share"], row["slo_share_low"]] == [figure["mean"], max(figure["low"], 0)]
        assert row["slo_share_high"] == min(figure["high"], 1)
        assert row["holds"] == (figure["low"] >= 0.8)
    assert "(95 % interval " in found["advice"][0]
    assert not any(line.startswith("One seed") for line in found["advice"])


def test_an_interval_of_a_share_ends_at_nothing_and_at_all(cli: Cli, sample: Path) -> None:
    load = (*SERVICE, "--arrivals", "trace,rate=30,jitter=1s", "--router", "random", "--workers", "2,6")
    rows = answered(cli, "replicas", sample, *load, "--seeds", "2")["tables"]["replicas"]
    assert min(row["slo_share_low"] for row in rows) == 0
    assert max(row["slo_share_high"] for row in rows) == 1


def test_where_prompts_alone_take_too_long_more_replicas_are_not_advised(cli: Cli, tmp_path: Path) -> None:
    trace = write_prompts(cli, tmp_path, [[at * 9 + each for each in range(8)] for at in range(120)], block_tokens=512)
    shape = ("--compute", "fixed,prefill_ms_per_token=0.1,decode_ms=1", "--capacity", "100", "--workers", "2,4")
    found = answered(cli, "replicas", trace, *shape, "--slo", "ttft=100ms")
    assert found["advice"][0].startswith("No number that was tried holds TTFT ≤ 100ms for 99.00 % of the requests: ")
    assert "of the mean TTFT is computing the prompt, which more replicas hardly shorten" in found["advice"][0]


def test_a_coarse_clock_is_warned_of_and_jitter_silences_it(cli: Cli, tmp_path: Path) -> None:
    trace = write_prompts(cli, tmp_path, [[at] for at in range(100)], at_ms=lambda row: row // 10 * 3000)
    shape = ("--compute", "poly", "--capacity", "100", "--workers", "1,2", "--slo", "ttft=1s")
    caution = "Caution: timestamps of prompts.arrow are coarse: 91% of its requests arrive at the very time of the one"
    plain = answered(cli, "replicas", trace, *shape)
    spread = answered(cli, "replicas", trace, *shape, "--arrivals", "trace,jitter=3s")
    assert plain["advice"][-1].startswith(caution)
    assert not any(line.startswith("Caution") for line in spread["advice"])


def test_A14_a_trace_without_ids_says_how_many_replicas_it_takes(cli: Cli, tmp_path: Path) -> None:
    """Lengths are enough to queue: 20 prompts of 100 ms come in a second. Of hits nothing is known."""
    rows = "".join(f"{at * 50_000_000},1000,20\n" for at in range(200))
    (tmp_path / "lengths.csv").write_text(f"arrival_ns,input_tokens,output_tokens\n{rows}")
    columns = "columns,arrival=arrival_ns:ns,input=input_tokens,output=output_tokens"
    imported = cli("trace", "import", "lengths.csv", "--format", columns)
    assert "note: prompts have lengths alone, no ids or texts, so nothing is known of their reuse" in (
        imported.out + imported.err
    )
    service = ("--compute", "fixed,prefill_ms_per_token=0.1,decode_ms=1", "--router", "round-robin")
    found = answered(cli, "replicas", "lengths.arrow", *service, "--slo", "ttft=300ms", "--workers", "1..4")
    assert found["advice"][0].startswith("2 replicas hold TTFT ≤ 300ms for 100.00 % of the requests; 1 do")
    assert any("has neither block_ids nor token_ids, so nothing hits" in line for line in found["advice"])
    for question, *arguments in (
        ("nvme", "--tier", "gpu", "--tier", "nvme", "--compute", "poly"),
        ("sharing", "--workers", "2"),
        ("eviction",),
        ("router", "--workers", "2"),
    ):
        message = "lengths.arrow has neither block_ids nor token_ids, so nothing is known of its reuse"
        assert message in refused(cli, question, "lengths.arrow", *arguments)


def test_a_router_that_loads_one_replica_is_warned_of_and_says_nothing_of_what_one_serves(
    cli: Cli, tmp_path: Path
) -> None:
    """All prompts have their opening in common, so max-prefix sends them to the worker that had the first."""
    prompts = [[*range(10), 10 + at] for at in range(200)]
    trace = write_prompts(cli, tmp_path, prompts, block_tokens=512, at_ms=lambda row: 2000 * (row > 0) + 60 * row)
    shape = ("--compute", "fixed,prefill_ms_per_token=0.2,decode_ms=1", "--capacity", "5k", "--workers", "4")
    packed = answered(cli, "replicas", trace, *shape, "--slo", "ttft=1s")
    spread = answered(cli, "replicas", trace, *shape, "--slo", "ttft=1s", "--router", "round-robin")
    assert packed["tables"]["replicas"][0]["verdict"] == "OVERLOADED"
    assert "Caution: max-prefix loads replicas unevenly: of 4 the busiest works 4.00 times the mean." in "".join(
        packed["advice"]
    )
    assert not any("saturated" in line for line in packed["advice"])
    assert not any("unevenly" in line for line in spread["advice"])


def test_where_no_prompt_fits_it_is_said(cli: Cli, sample: Path) -> None:
    message = refused(cli, "replicas", sample, "--compute", "poly", "--capacity", "1", "--slo", "ttft=1s")
    assert "load = 1.0, workers = 1, seed = 0: no request that counts is done; request 0 needs" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--capacity", "9"),
            "how long requests take has to be known, and how long they may: give --compute and --slo",
        ),
        ((*SERVICE, "--workers", "0..3"), "--workers 0..3: '0..3' is no range of numbers of at least 1, such as 1..8"),
        ((*SERVICE, "--share", "2"), "--share = 2 is not a share; write for example 1% or 0.01"),
        ((*SERVICE, "--load-scale", "0"), "--load-scale 0 must be a number above 0, such as 0.5 or 2"),
        (("--slo", "5s"), "--slo 5s: '5s' is not of the form key=value; keys are ttft, tpot, e2e"),
        ((*SERVICE, "--seeds", "0"), "--seeds = 0 must be at least 1"),
    ],
)
def test_what_says_nothing_of_an_slo_is_refused(
    cli: Cli, sample: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(cli, "replicas", sample, *arguments)
