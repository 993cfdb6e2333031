"""Results as notebooks show them: a small HTML table, without colours, scripts and addresses, for dark and light."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kvbench.results.headline import NOTHING, SHOWN, change, duration, number, percent
from kvbench.results.repeats import leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kvbench.results.accuracy import MeasuredComparison
    from kvbench.results.compare import Comparison
    from kvbench.results.curve import CurveResult
    from kvbench.results.matrix import MatrixResult
    from kvbench.results.repeats import RepeatResult
    from kvbench.results.result import ReplayResult

MAX_ROWS = 40
BOUNDS = {"belady_rates.token": "token rate, Belady bound", "infinite_rates.token": "token rate, infinite cache"}


def table_html(caption: str, headers: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """A table with its caption, at most :data:`MAX_ROWS` rows, and a note below; all text is escaped. The first
    column reads from the left, the others from the right."""

    def cells(tag: str, texts: Iterable[str]) -> str:
        aligned = (
            f'<{tag} style="text-align:{"left" if at == 0 else "right"}">{escape(text)}</{tag}>'
            for at, text in enumerate(texts)
        )
        return f"<tr>{''.join(aligned)}</tr>"

    left_out = len(rows) - MAX_ROWS
    notes = [text for text in (f"… {left_out:,} more rows" if left_out > 0 else "", note) if text]
    body = "".join(cells("td", row) for row in rows[:MAX_ROWS])
    return (
        f'<div><table><caption style="text-align:left">{escape(caption)}</caption>'
        f"<thead>{cells('th', headers)}</thead><tbody>{body}</tbody></table>"
        f"{''.join(f'<p>{escape(text)}</p>' for text in notes)}</div>"
    )


def replay_html(result: ReplayResult) -> str:
    """The figures that matter most, between their bounds."""
    figures = dict(leaves(result.summary))
    rows = [(title, write(figures[path])) for path, (title, write) in SHOWN.items() if path in figures]
    rows[1:1] = [(title, percent(figures[path])) for path, title in BOUNDS.items()]
    return table_html(_caption(result.manifest, result.summary["requests"]), ("figure", "value"), rows)


def repeat_html(result: RepeatResult) -> str:
    """The same on average over the seeds, with the interval of the mean."""
    rows = [
        (title, str(found.n), write(found.mean), f"{write(found.low)} … {write(found.high)}")
        for path, (title, write) in SHOWN.items()
        if (found := result.figures.get(path)) is not None
    ]
    caption = f"{_caption(result.manifest)} · seeds {', '.join(map(str, result.seeds))}"
    return table_html(caption, ("figure", "runs", "mean", "95 % interval"), rows)


def matrix_html(result: MatrixResult) -> str:
    """A row for each cell; the best of a capacity has a star."""
    rows = []
    for cell in result.cells:
        capacity = cell["capacity_blocks"]
        star = " *" if (cell["policy"], cell["router"]) in result.best(capacity) else ""
        names = [cell["policy"], *([cell["router"]] if cell["router"] is not None else [])]
        rates = (cell["rates"]["token"], cell["rates"]["block"], cell["belady_rates"]["token"])
        size = "infinite" if capacity is None else number(capacity)
        rows.append((" · ".join(names) + star, size, *map(percent, rates)))
    headers = ("policy", "capacity, blocks", "token rate", "block rate", "token rate, Belady bound")
    return table_html(_caption(result.manifest), headers, rows, "* best token rate of its capacity")


def curve_html(result: CurveResult) -> str:
    """The rates at each capacity, and the knee."""
    rates = ("token", "block", "request_mean")
    rows = [(number(row["capacity_blocks"]), *(percent(row["rates"][name]) for name in rates)) for row in result.curve]
    rows.append(("infinite", *(percent(result.summary["infinite_rates"][name]) for name in rates)))
    knee = result.summary["knee"]
    note = "" if knee is None else f"knee: {number(knee['capacity_blocks'])} blocks, {percent(knee['value'])}"
    return table_html(_caption(result.manifest), ("capacity, blocks", *(f"{name} rate" for name in rates)), rows, note)


def comparison_html(comparison: Comparison) -> str:
    """The figures that matter most of each run, with the difference from the first."""
    names = [run.name for run in comparison.runs]
    others = range(1, len(names))
    rows = []
    for path, (title, write) in SHOWN.items():
        found = comparison.figures.get(path)
        if found is not None:
            pairs = (cell for at in others for cell in (write(found.values[at]), change(found.share(at))))
            rows.append((title, write(found.values[0]), *pairs))
    headers = ("figure", names[0], *(cell for name in names[1:] for cell in (name, "Δ %")))
    figures = comparison.figures.values()
    differing = sum(any(each.delta(at) for at in others) for each in figures)
    verdict = "all runs are equal" if comparison.equal else f"{differing:,} of {len(figures):,} figures differ"
    return table_html(_caption(comparison.runs[0].manifest), headers, rows, verdict)


def measured_html(comparison: MeasuredComparison) -> str:
    """How far each latency is from what was measured."""
    rows = []
    for name, found in comparison.accuracy.items():
        errors = [NOTHING if error is None else f"{100 * error:+.2f} %" for error in found.errors.values()]
        correlation = NOTHING if found.pearson is None else f"{found.pearson:.3f}"
        measured = duration(found.measured_ns["mean"])
        rows.append((name.upper(), number(found.n), measured, percent(found.mape), *errors, correlation))
    statistics = next(iter(comparison.accuracy.values())).errors if comparison.accuracy else ()
    headers = ("latency", "n", "measured mean", "MAPE", *(f"error of {name}" for name in statistics), "Pearson")
    return table_html(f"{comparison.run} beside {comparison.measured}", headers, rows)


def _caption(manifest: Mapping[str, Any], requests: Mapping[str, Any] | None = None) -> str:
    """What was replayed: trace, requests, and the parts that were chosen."""
    config, trace = manifest["config"], manifest["trace"]
    parts = [trace["source_name"] or trace["digest"][:19]]
    if requests is not None:
        parts.append(f"{requests['done']:,} of {requests['arrived']:,} requests")
    chosen = [name for name in ("policy", "router", "compute") if isinstance(config.get(name), dict)]
    parts += [f"{name} {config[name]['name']}" for name in chosen]
    if isinstance(config.get("capacity"), int):
        parts.append(f"{config['capacity']:,} blocks")
    parts += [tier["name"] for tier in config.get("tiers") or ()]
    return " · ".join(parts)
