"""Writes the generated parts of README.md: sessions, tables and the CLI reference.

cog -r -P -I tests README.md        write them anew
cog --check -P -I tests README.md   fail if one is out of date (the tests do this)
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

import kvbench
from kvbench.cache.events import EVENT_KINDS, EVENT_REASONS
from kvbench.cli.root import root
from kvbench.config import TABLES, RunConfig
from kvbench.plugins import HOOKS, load_registry
from kvbench.presets import load_preset, preset_names
from kvbench.replays.tierplan import PLACEMENTS
from kvbench.results.events import EVENTS_SCHEMA
from kvbench.results.hitrates import HIT_RATES
from kvbench.results.rates import RATES
from kvbench.results.requests import CARRIED, COMPUTED, MISS_REASONS, ROUTED, tier_request_columns
from kvbench.results.timeline import TIMELINE_SCHEMA
from kvbench.serveconfig import LINK
from kvbench.serving.devices import load_devices
from kvbench.specs import (
    AdmissionSpec,
    EvictionPolicySpec,
    ExecutorSpec,
    HashAlgorithmSpec,
    TokenDatabaseSpec,
    TraceFormatSpec,
    WorkloadSpec,
)
from kvbench.tierconfig import TierConfig
from kvbench.trace.schema import COLUMNS, TraceFacts

ROOT = Path(__file__).parent.parent
WALL_CLOCK = re.compile(r"^wall clock: .*$", re.MULTILINE)
PART_KINDS = (*(EvictionPolicySpec, AdmissionSpec, TokenDatabaseSpec, TraceFormatSpec, WorkloadSpec, ExecutorSpec),)
"""Kinds of the table of parts; routers, devices, compute models and hash algorithms have tables of their own."""

STACK = (
    "gpu,capacity=2500",
    "cpu,capacity=10k",
    "nvme,capacity=30k",
    "dfs,capacity=100k,scope=cluster",
)
STACK_RUN: dict[str, Any] = {"tails": "keep", "workers": 4, "router": "round-robin", "model": "llama-3.1-70b", "tp": 8}
"""The tiers of the Mooncake study, fastest first, and the settings of all its runs."""

PUBLISHED_POOLS = {"conversation": (16.91, 37.47), "synthetic": (26.39, 62.19)}
"""Mooncake, FAST'25, figure 10: hit rates in percent of local caches and of one global cache."""

POOL_WORKERS, POOL_BLOCKS = 10, 5_859
"""Figure 10: ten nodes of 3 million tokens, which are so many blocks of 512."""


def run(command: str, cwd: Path = ROOT) -> str:
    """What a ``kvbench …`` command prints, with the wall clock left out."""
    words = shlex.split(command)
    assert words[0] == "kvbench", command
    env = {**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-m", "kvbench", *words[1:]], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    return WALL_CLOCK.sub("wall clock: …", done.stdout + done.stderr).rstrip()


def session(*commands: str, where: str = "root", quiet: int = 0) -> None:
    """Print commands and what they print as a terminal session; with ``where="folder"`` they write to a
    temporary folder, which has the sample traces. Of the first ``quiet`` ones the output is left out."""
    print("```console")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "traces").symlink_to(ROOT / "traces")
        for at, command in enumerate(commands):
            printed = run(command, ROOT if where == "root" else Path(folder))
            print(f"$ {command}\n{'…' if at < quiet else printed}")
    print("```")


def fold_session() -> None:
    """Print a replay that writes events, and what they fold to."""
    replay = "kvbench replay traces/chat.arrow --tier gpu,capacity=500 --tier cpu,capacity=2k --events events.parquet"
    session(replay, "kvbench events fold events.parquet --until 1000", where="folder", quiet=1)


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a Markdown table."""
    headers = list(headers)
    print("| " + " | ".join(headers) + " |")
    print("|" + "---|" * len(headers))
    for row in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")


def rates() -> None:
    table(("rate", "definition"), ((f"`{name}`", text) for name, text in RATES.items()))


def serving_rates() -> None:
    """The rates of serving systems."""
    table(("rate", "formula", "printed as"), ((f"`{rate.name}`", rate.formula, rate.source) for rate in HIT_RATES))


def misses() -> None:
    table(
        ("reason", "the block was missing because"),
        ((f"`{name.removeprefix('miss_').removesuffix('_blocks')}`", text) for name, text in MISS_REASONS.items()),
    )


def trace_columns() -> None:
    table(
        ("column", "type", "meaning"),
        (
            (f"`{c.name}`" + (" (required)" if c.required else ""), str(c.type).replace("<item: ", "<"), c.help)
            for c in COLUMNS
        ),
    )


def trace_facts() -> None:
    defaults = TraceFacts()
    table(
        ("fact", "default"),
        ((f"`{f.name}`", f"`{getattr(defaults, f.name)!r}`") for f in dataclasses.fields(TraceFacts)),
    )


def request_columns() -> None:
    rows = [("`request`", "number of the request, from 0"), (", ".join(f"`{c}`" for c in CARRIED), "from the trace")]
    table(("column", "meaning"), [*rows, *((f"`{c.name}`", c.help) for c in (*COMPUTED, *ROUTED))])


def tier_columns() -> None:
    table(("column", "meaning"), ((f"`{c.name}`", c.help) for c in tier_request_columns(["TIER"])))


def event_columns() -> None:
    names(EVENTS_SCHEMA.names)


def event_kinds() -> None:
    names(EVENT_KINDS)


def event_reasons() -> None:
    names(EVENT_REASONS)


def timeline_columns() -> None:
    names(TIMELINE_SCHEMA.names)


def names(words: Iterable[str]) -> None:
    print(", ".join(f"`{word}`" for word in words))


def tier_keys() -> None:
    """Print the keys of a tier."""
    keys_of(TierConfig)


def table_keys(name: str) -> None:
    """Print the keys of a setting that is a table, or of one of ``links``."""
    keys_of((LINK if name == "links" else TABLES[name]).struct)


def keys_of(config: type[msgspec.Struct]) -> None:
    """Print the keys of a table of a run file as its class documents them."""
    doc = config.__doc__
    assert doc is not None
    defaults = config.__struct_defaults__
    fields = dict(zip(config.__struct_fields__[-len(defaults) :], defaults, strict=True))
    entries = re.findall(r"^ {4}(``\w+``(?:, ``\w+``)*) +(.*(?:\n {5,}\S.*)*)", doc, re.MULTILINE)
    rows = [
        (keys.replace("``", "`"), default_of(re.findall(r"\w+", keys), fields), re.sub(r"\s*\n\s*", " ", text))
        for keys, text in entries
    ]
    documented = [key for keys, _, _ in rows for key in re.findall(r"\w+", keys)]
    assert sorted(documented) == sorted(config.__struct_fields__), f"{config.__name__} documents each of its keys once"
    table(
        ("key", "default", "meaning"),
        ((keys, default, text.replace("``", "`").replace("None: ", "default: ")) for keys, default, text in rows),
    )


def default_of(keys: list[str], fields: dict[str, Any]) -> str:
    found = {fields.get(key) for key in keys}
    value = found.pop() if len(found) == 1 else None
    return "–" if value is None else f"`{str(value).lower()}`"


def placements() -> None:
    means = {
        "through": "at once",
        "back": "when the tier above evicts them",
        "spill": "if no faster tier has room",
        "copy": "copied up",
        "move": "moved up",
        "none": "stay where they are",
    }
    table(
        ("placement", "computed blocks are stored in a lower tier", "blocks that hit below"),
        ((f"`{name}`", means[how["write"]], means[how["promotion"]]) for name, how in PLACEMENTS.items()),
    )


def presets() -> None:
    rows = []
    for name in preset_names():
        preset = load_preset(name)
        run = [f"{key} {value}" for key, value in preset.settings.items() if key != "tiers"]
        tiers = [
            f"**{tier['name']}** " + ", ".join(setting(key, value) for key, value in tier.items() if key != "name")
            for tier in preset.settings["tiers"]
        ]
        rows.append((f"`{name}`", preset.system, preset.version, "; ".join([*run, *tiers])))
    table(("preset", "system", "version", "what it sets"), rows)


def setting(key: str, value: object) -> str:
    """One setting of a tier, in few words."""
    if isinstance(value, dict):
        value = ",".join([value["name"], *(f"{name}={each}" for name, each in value.items() if name != "name")])
    return f"{key} {str(value).lower() if isinstance(value, bool) else value}"


def devices() -> None:
    rows = []
    for name, device in sorted(load_devices().items()):
        bandwidths = (device.read_bandwidth_bytes_per_s, device.write_bandwidth_bytes_per_s)
        latencies = (device.read_latency_ns, device.write_latency_ns, device.lookup_ns)
        figures = [f"{each / 1e9:.6g}" for each in bandwidths] + [f"{each / 1e3:g}" for each in latencies]
        rows.append((f"`{name}`", device.help, device.basis, *figures))
    units = ("read GB/s", "write GB/s", "read µs", "write µs", "lookup µs")
    table(("device", "what it is", "figures", *units), rows)


def stack_study(trace: Path) -> str:
    """The commands of the Mooncake study of tiers, and the table that they give on ``trace``."""
    command = [
        "kvbench replay conversation_trace.arrow",
        *(f"--{key} {value}" for key, value in STACK_RUN.items()),
        "--placement inclusive",
    ]
    tiers = " ".join(f"--tier {tier}" for tier in STACK)
    lines = [f"```sh\n{' '.join(command)} \\\n    {tiers}\n```\n"]
    lines.append("| tiers | placement | token | " + " | ".join(tier.split(",")[0] for tier in STACK) + " |")
    lines.append("|" + "---|" * (3 + len(STACK)))
    lines += [stack_row(trace, 1, "inclusive", "–")]
    lines += [stack_row(trace, count, how, how) for count in (2, 3, 4) for how in ("inclusive", "exclusive")]
    lines += [stack_row(trace, 4, "exclusive", "exclusive, dfs `write=through`", ",write=through")]
    return "\n".join(lines)


def stack_row(trace: Path, count: int, placement: str, title: str, last: str = "") -> str:
    """One row: the first ``count`` tiers, with ``last`` added to the last one's settings."""
    tiers = [*STACK[: count - 1], STACK[count - 1] + last]
    result = kvbench.replay(trace, tiers=tiers, placement=placement, belady="off", **STACK_RUN)
    name = STACK[count - 1].split(",")[0]
    rate = result.rates["token"]
    assert rate is not None
    figures = [
        f"{tier['hit_blocks']:,} · {tier['read_bytes'] / 2**40:.2f} · {tier['written_bytes'] / 2**40:.2f}"
        for tier in result.summary["tiers"]
    ]
    cells = [name if count == 1 else f"+ {name}", title, f"{100 * rate:.2f} %", *figures, *["–"] * (len(STACK) - count)]
    return "| " + " | ".join(cells) + " |"


def pool_settings(*, pooled: bool, router: str, workers: int = POOL_WORKERS, capacity: int = POOL_BLOCKS) -> Any:
    """A run of ``workers`` with a cache of ``capacity`` each, or with one pool of all that for all of them."""
    pool = {"name": "pool", "capacity": capacity * workers, "scope": "cluster"}
    tier = pool if pooled else {"name": "local", "capacity": capacity}
    return {"tails": "keep", "workers": workers, "router": router, "tiers": [tier], "belady": "off"}


def pool_study(traces: dict[str, Path]) -> str:
    """The commands of figure 10, and its table with ours beside it."""
    command = f"kvbench replay conversation_trace.arrow --tails keep --workers {POOL_WORKERS} --router round-robin"
    lines = [
        "```sh",
        f"{command} --tier local,capacity={POOL_BLOCKS}",
        f"{command} --tier pool,capacity={POOL_BLOCKS * POOL_WORKERS},scope=cluster",
        "```\n",
        "| trace | caches | router | published | here | difference |",
        "|---|---|---|---|---|---|",
    ]
    for name, (local, pooled) in PUBLISHED_POOLS.items():
        trace = traces[name]
        lines += [pool_row(trace, name, how, local, pooled=False) for how in ("round-robin", "random", "max-prefix")]
        lines += [pool_row(trace, name, "round-robin", pooled, pooled=True)]
    return "\n".join(lines)


def pool_row(trace: Path, name: str, router: str, published: float, *, pooled: bool) -> str:
    rate = kvbench.replay(trace, **pool_settings(pooled=pooled, router=router)).rates["token"]
    assert rate is not None
    here = round(100 * rate, 2)
    caches = ("one pool", "any") if pooled else ("ten local", router)
    difference = f"{here - published:+.2f}".replace("-", "−")
    cells = (name, *caches, f"{published} %", f"{here:.2f} %", difference)
    return "| " + " | ".join(cells) + " |"


def parts() -> None:
    registry = load_registry(autoload=False)
    rows = []
    for kind in PART_KINDS:
        for spec in registry.specs(kind):
            params = ", ".join(f"`{p.name}={p.default}`".replace("=None`", "`").replace("=`", "`") for p in spec.params)
            rows.append((kind.kind, f"`{spec.name}`", spec.help, params or "–", spec.source))
    table(("kind", "name", "what it does", "parameters", "source"), rows)


def hash_algorithms() -> None:
    """Print what each hash algorithm hashes."""
    rows = []
    for spec in load_registry(autoload=False).specs(HashAlgorithmSpec):
        params = ", ".join(f"`{p.name}={p.default}`".replace("=None`", "`").replace("=`", "`") for p in spec.params)
        needs = ", ".join(spec.needs)
        rows.append((f"`{spec.name}`", spec.help, spec.layout, spec.root, params or "–", needs or "–", spec.source))
    table(("algorithm", "whose", "what is hashed", "root", "parameters", "needs", "source"), rows)


def example_policy() -> None:
    """Print the example plugin's class and hook, without its module docstring."""
    source = (ROOT / "plugins/kvbench-example-policy/kvbench_example_policy.py").read_text()
    code = source.split('"""', 2)[2].strip()
    print(f"```python\n{code}\n```")


def hooks() -> None:
    table(("hook", "yields"), ((f"`{hook}`", f"`kvbench.{kind.__name__}`") for hook, kind in HOOKS.items()))


def config_keys() -> None:
    names(RunConfig.__struct_fields__)


def layers() -> None:
    """Print the layers that import-linter holds, the highest first."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (found,) = (contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers")
    print("`" + " → ".join(layer.replace(" | ", ", ") for layer in found) + "`")


def cli() -> None:
    """Print the help of every command."""
    settings = {"help_option_names": ["-h", "--help"]}
    ctx = click.Context(root, info_name="kvbench", obj=load_registry(autoload=False), **settings)
    _help(root, ctx)


def _help(command: click.Command, ctx: click.Context) -> None:
    ctx.terminal_width = 100
    print(f"### `{ctx.command_path}`\n\n```text\n{command.get_help(ctx).rstrip()}\n```\n")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None, name
            _help(child, click.Context(child, info_name=name, parent=ctx, help_option_names=["-h", "--help"]))
