"""The parts of the README on the figures of timed replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llmd_study
import pyarrow as pa
from readme import ROOT, names, run, table

import kvbench
from kvbench.plugins import load_registry
from kvbench.results.goodput import GOODPUT_DEFINITION
from kvbench.results.headline import duration
from kvbench.results.latency import ITL_DEFINITION, LATENCIES
from kvbench.results.requests import TIMED
from kvbench.results.throughput import THROUGHPUT, WORK
from kvbench.results.timedtimeline import TIMED_COLUMNS
from kvbench.results.timeline import TIMELINE_SCHEMA
from kvbench.results.timetable import LATENCY_COLUMNS, TABLE_COLUMNS
from kvbench.results.verdict import SIGNALS, STATES

DISK_RUN: dict[str, Any] = {
    "model": "Llama-3.1-70B",
    "tp": 8,
    "compute": "roofline",
    "arrivals": {"rate": 4},
}
DISKS = (
    ("GPU alone", (), "always"),
    ("+ CPU memory", ("cpu,capacity=2k,device=cpu-pcie5",), "always"),
    ("+ NVMe drive, PCIe 4", ("nvme,capacity=20k,device=nvme-gen4",), "always"),
    ("+ NVMe drive, PCIe 3", ("nvme,capacity=20k,device=nvme-gen3",), "always"),
    ("+ a disk of 0.5 GB/s", ("nvme,capacity=20k,device=nvme-gen4,device.read_gb_per_s=0.5",), "always"),
    ("+ NVMe drive, PCIe 4", ("nvme,capacity=20k,device=nvme-gen4",), "cheaper"),
    ("+ a disk of 0.5 GB/s", ("nvme,capacity=20k,device=nvme-gen4,device.read_gb_per_s=0.5",), "cheaper"),
)
"""What is below a GPU of 800 blocks, and the rule by which it is read."""

DYNAMO_REUSE = {1_000: 4.5926, 3_000: 6.8585, 10_000: 21.9236, 30_000: 33.7111, 100_000: 37.1025, 200_000: 37.338}
"""Percent of prompt tokens that ai-dynamo 1.4.2 reuses on Mooncake's conversation, by blocks of its one GPU: answers of
one token, arrivals slowed five times."""

DYNAMO_SERVICE = {"round-robin": ("round_robin", 10.00, 506, 11.27), "dynamo-kv": ("kv_router", 17.42, 439, 11.94)}
"""Our router → its name in ai-dynamo 1.4.2, and what that finds with 4 GPUs of 3,000 blocks: percent reused, mean TTFT
and mean TPOT in ms. Its KV router breaks ties without a seed: reuse is 17.05 to 17.42 %."""


def session(command: str, *shown: str) -> None:
    """Print a command and those tables of what it prints whose first line begins with one of ``shown``."""
    parts = [part if part.startswith(shown) else "…" for part in run(command).split("\n\n")]
    parts = [part for at, part in enumerate(parts) if at == 0 or part != "…" or parts[at - 1] != "…"]
    text = "\n\n".join(parts).replace("…\n\n", "…\n").replace("\n\n…", "\n…")
    print(f"```console\n$ {command}\n{text}\n```")


def disks() -> None:
    """Print what tiers below a GPU do to TTFT."""
    print("| below the GPU | `load` | token | TTFT mean | p99 | queue | fetch | prefill | drive reads | verdict |")
    print("|" + "---|" * 10)
    for title, tiers, load in DISKS:
        settings = {**DISK_RUN, "tiers": ["gpu,capacity=800", *tiers], "worker": {"load": load}}
        if not tiers:
            del settings["worker"]
        result = kvbench.replay(ROOT / "traces/chat.arrow", registry=load_registry(autoload=False), **settings)
        timed = result.summary["timed"]
        rate = result.rates["token"]
        assert rate is not None
        times = [duration(timed["ttft_ns"][each]) for each in ("mean", "p99")]
        times += [duration(timed[f"{part}_ns"]["mean"]) for part in ("queue", "fetch", "prefill")]
        reads = [f"{100 * link['utilisation']:.0f} %" for link in timed["links"] if link["name"].endswith("read")]
        cells = (title, f"`{load}`" if tiers else "", f"{100 * rate:.1f} %", *times, *(reads or ["–"]))
        print("| " + " | ".join((*cells, timed["verdict"]["state"])) + " |")


def routers_of_llm_d() -> None:
    """Print the study of llm-d beside what is published, with answers as stated and as they seem to have been."""
    stated, seen = (llmd_study.study(llmd_study.workload(output_tokens=tokens)) for tokens in (1_000, 430))
    rows = []
    for name, published in llmd_study.PUBLISHED.items():
        figures = (published, llmd_study.figures(stated[name]), llmd_study.figures(seen[name]))
        cells = [cell for tokens, seconds in figures for cell in (f"{tokens:,.0f}", f"{seconds:.3g} s")]
        rows.append((name, *cells, f"`{llmd_study.ROUTERS[name]['router']}`"))
    heads = [
        f"{who}: {what}" for who in ("published", "1,000 tokens", "430 tokens") for what in ("tokens/s", "TTFT p90")
    ]
    table(("router", *heads, "`--router`"), rows)


def dynamo_study(trace: Path) -> str:
    """Mooncake's conversation beside ai-dynamo: reuse by size, and four workers with all answers."""
    answers = pa.ipc.open_file(trace).read_all()
    at = answers.schema.get_field_index("output_tokens")
    one = answers.set_column(at, "output_tokens", pa.array([1] * len(answers), pa.uint32()))
    settings: dict[str, Any] = {"compute": "poly", "registry": load_registry(autoload=False)}
    lines = ["| GPU blocks | Dynamo reuses | here | difference, points |", "|---|---|---|---|"]
    for blocks, percent in DYNAMO_REUSE.items():
        rate = kvbench.replay(one, capacity=blocks, arrivals={"rate": 0.2}, **settings).rates["token"]
        assert rate is not None
        difference = f"{100 * rate - percent:+.4f}".replace("-", "−")
        lines.append(f"| {blocks:,} | {percent:.4f} % | {100 * rate:.4f} % | {difference} |")
    lines += [
        "",
        "| router | its name there | reused | here | TTFT, mean | here | TPOT, mean | here |",
        "|" + "---|" * 8,
    ]
    for router, (name, *theirs) in DYNAMO_SERVICE.items():
        result = kvbench.replay(trace, workers=4, capacity=3_000, router=router, **settings)
        timed, rate = result.summary["timed"], result.rates["token"]
        assert rate is not None
        ours = (100 * rate, timed["ttft_ns"]["mean"] / 1e6, timed["tpot_ns"]["mean"] / 1e6)
        forms = ("{:.2f} %", "{:.0f} ms", "{:.2f} ms")
        cells = [
            form.format(each) for form, pair in zip(forms, zip(theirs, ours, strict=True), strict=True) for each in pair
        ]
        lines.append(f"| `{router}` | `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figures() -> None:
    """Print what each figure is."""
    rows = [(f"`{name}_ns`", text) for name, text in (LATENCIES | {"itl": ITL_DEFINITION}).items()]
    rows += [("`goodput`", GOODPUT_DEFINITION)]
    rows += [(f"`throughput.{name}_per_s`", text) for name, text in THROUGHPUT.items()]
    rows += [(f"`work.{name}`", text) for name, text in WORK.items()]
    rows += [("`run.lost_writes`", "chunks for lower tiers that left the GPU before they were written, and are lost")]
    table(("figure", "definition"), rows)


def verdicts() -> None:
    """Print what the verdict is made of, and when which is given."""
    table(("signal", "what it is"), ((f"`{name}`", text) for name, text in SIGNALS.items()))
    print()
    table(("verdict", "when"), ((f"`{name}`", text) for name, text in STATES.items()))


def request_columns() -> None:
    rows = {"arrival_ns": "intended arrival on the simulated clock", **TABLE_COLUMNS, **LATENCY_COLUMNS}
    rows |= {column.name: column.help for column in TIMED}
    rows["trace_arrival_ns"] = "arrival by the trace, where that may be another"
    table(("column", "meaning"), ((f"`{name}`", text) for name, text in rows.items()))


def timeline_columns() -> None:
    table(("column", "meaning"), ((f"`{name}`", text) for name, text in TIMED_COLUMNS.items()))
    print("\nand of stores, as above: ", end="")
    names(TIMELINE_SCHEMA.names[4:])
