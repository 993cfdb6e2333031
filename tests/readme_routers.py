"""The parts of the README on routers."""

from __future__ import annotations

from pathlib import Path

from readme import ROOT, table

import kvbench
from kvbench.plugins import load_registry
from kvbench.specs import RouterPolicySpec

WORKERS, BLOCKS = 10, 5_859


def routers() -> None:
    """Print what each router does, presets last."""
    specs = load_registry(autoload=False).specs(RouterPolicySpec)
    rows = []
    for spec in sorted(specs, key=lambda spec: (spec.index != "" or "@" in spec.name, spec.name)):
        params = ", ".join(f"`{param.name}={param.default}`" for param in spec.params)
        rows.append((f"`{spec.name}`", spec.help, params or "–", f"`{spec.index}`" if spec.index else "", spec.source))
    table(("router", "who serves a request", "parameters", "index", "source"), rows)


def router_study(trace: Path) -> str:
    """Every router that needs no sessions on ``trace``, the highest token rate first."""
    registry = load_registry(autoload=False)
    names = [spec.name for spec in registry.specs(RouterPolicySpec) if not spec.columns]
    settings = {"workers": WORKERS, "capacity": BLOCKS, "tails": "keep"}
    result = kvbench.replay_matrix(trace, router=names, registry=registry, **settings)
    cells = sorted(result.cells, key=lambda cell: (-(cell["rates"]["token"] or 0), cell["router"]))
    lines = [
        "```sh",
        f"kvbench replay conversation_trace.arrow --tails keep --workers {WORKERS} --capacity {BLOCKS} \\",
        "    --router max-prefix --router dynamo-kv@1.4 …",
        "```\n",
        "| router | token | block | requests, max/mean | computed, max/mean | routed away, Mtok | stale, Mtok |",
        "|---|---|---|---|---|---|---|",
    ]
    bounds = (("*infinite*", "infinite_rates"), ("*Belady, one pool*", "belady_rates"))
    lines += [f"| {name} | {_rates(cells[0][rates])} | | | | |" for name, rates in bounds]
    for cell in cells:
        load = f"{cell['max_over_mean_requests']:.2f} | {cell['max_over_mean_computed_tokens']:.2f}"
        lost = f"{cell['routed_away_tokens'] / 1e6:.1f} | {cell['stale_tokens'] / 1e6:.1f}"
        lines.append(f"| `{cell['router']}` | {_rates(cell['rates'])} | {load} | {lost} |")
    return "\n".join(lines)


def _rates(rates: dict[str, float | None]) -> str:
    return " | ".join("–" if rates[name] is None else f"{100 * rates[name]:.2f} %" for name in ("token", "block"))


STALENESS = (
    {},
    {"event_channel": "coalesce=1s"},
    {"event_channel": "coalesce=10s"},
    {"event_channel": "coalesce=10s", "index": "predictive,ttl=10s"},
    {"event_channel": "coalesce=30s,batch=64,cycle=30s"},
    {"event_channel": "loss=0.01"},
    {"event_channel": "loss=0.1"},
    {"index": "approximate,ttl=120s"},
    {"index": "approximate,capacity=100"},
    {"index": "approximate,ttl=120s", "routers": 4},
)
"""What routers know, in the runs of the table."""


def staleness() -> None:
    """Print what one router delivers, by what it knows."""
    settings = {"capacity": "5%", "workers": 4, "router": "pstack-loadaware,beta=0.5"}
    print("```sh")
    print("kvbench replay traces/chat.arrow --capacity 5% --workers 4 --router pstack-loadaware,beta=0.5 …")
    print("```\n")
    rows = []
    for knowledge in STALENESS:
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in knowledge.items())
        summary = kvbench.replay(ROOT / "traces/chat.arrow", **settings, **knowledge).summary
        tokens = [summary["routing"][f"{name}_tokens"] for name in ("routed_away", "stale", "unforeseen")]
        load = summary["workers"]["max_over_mean_requests"]
        rate = f"{100 * summary['rates']['token']:.2f} %"
        rows.append((f"`{options}`" if options else "", rate, f"{load:.2f}", *(f"{count:,}" for count in tokens)))
    table(("what the router knows", "token", "requests, max/mean", "routed away", "stale", "unforeseen"), rows)


def example_router() -> None:
    """Print the example plugin's code without its module docstring."""
    source = (ROOT / "plugins/kvbench-example-router/kvbench_example_router.py").read_text()
    print(f"```python\n{source.split(chr(34) * 3, 2)[2].strip()}\n```")
