"""A report: what files say, in the order in which it is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kvbench.plugins import own_version
from kvbench.report.capacityfigure import capacity_figure
from kvbench.report.cellfigures import CAPACITY, TTFT_P99, cell_figures, rate_path, varied
from kvbench.report.cells import Cell
from kvbench.report.inspection import REUSED, cumulated
from kvbench.report.page import Headline, Section, TableView
from kvbench.report.runsection import run_section
from kvbench.report.sources import CellSet, cells_of_runs, differing, settings_of
from kvbench.results.headline import SHOWN, percent
from kvbench.units import format_bytes, format_count, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvbench.report.figure import Figure
    from kvbench.report.sources import Material, ReportCurve, ReportRun

MAX_ROWS = 200
"""Of a table of configurations."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its title, a line on what it is about, its parts, and the manifests of the files by their names."""

    title: str
    lead: str
    sections: list[Section]
    manifests: dict[str, dict[str, Any]]

    @property
    def manifest(self) -> dict[str, Any]:
        """Of the page."""
        return {"kvbench": own_version(), "files": self.manifests}

    @property
    def figures(self) -> list[Figure]:
        """All figures, in the order of the page."""
        return [figure for section in self.sections for figure in section.figures]


def assemble(material: Material) -> Report:
    """The report on what was read; what is of different traces stands apart."""
    traces = {manifest["trace"]["digest"]: manifest["trace"] for manifest in material.manifests.values()}
    several = len(traces) > 1
    sections: list[Section] = []
    for at, (digest, trace) in enumerate(traces.items(), 1):
        prefix, before = (f"trace{at}-", f"{_name(trace)}: ") if several else ("", "")
        sections += _of_trace(material, digest, prefix, before)
    sections.append(_provenance(material))
    names = [_name(trace) for trace in traces.values()]
    return Report(", ".join(names), _lead(material), sections, material.manifests)


def _name(trace: Mapping[str, Any]) -> str:
    return str(trace.get("source_name") or trace["digest"])


def _of_trace(material: Material, digest: str, prefix: str, before: str) -> list[Section]:
    runs = [run for run in material.runs if run.manifest["trace"]["digest"] == digest]
    curves = [curve for curve in material.curves if curve.manifest["trace"]["digest"] == digest]
    single = [run_section(run, before + "What the run found", prefix) for run in runs if len(runs) == 1]
    sets = [each for each in material.sets if each.digest == digest]
    named = [cell for cell in material.seeds if cell.digest == digest]
    named += cells_of_runs(runs) if len(runs) > 1 else []
    if named:
        sets.append(CellSet([], digest, {}, named))
    several = len(sets) > 1
    rest = []
    for at, each in enumerate(sets, 1):
        if each.cells or any(sweep.failed for _, sweep in each.sweeps):
            own = f"{prefix}set{at}-" if at > 1 else prefix
            behind = _behind(each) if several else ""
            rest.append(_side_by_side(each, [] if each.names else runs, own, before, behind))
    if len(runs) > 1:
        rest += [run_section(run, f"{before}Run {run.label}", f"{prefix}run{at}-") for at, run in enumerate(runs, 1)]
    capacity = _capacity(curves, sets or [CellSet([], digest, {}, cells_of_runs(runs))], prefix, before)
    return [*single, *([capacity] if capacity is not None else []), *rest]


def _behind(found: CellSet) -> str:
    """What tells the cells of some files from those of others, behind a title."""
    return f": {', '.join(found.names) or 'runs'}"


def _over_capacity(sets: Sequence[CellSet]) -> list[CellSet]:
    """Those of several that say what capacity does; a single point says nothing of that."""
    return [each for each in sets if len({cell.figures.get(CAPACITY) for cell in each.cells}) > 1]


def _capacity(curves: Sequence[ReportCurve], sets: Sequence[CellSet], prefix: str, before: str) -> Section | None:
    """What more capacity would bring."""
    figures: list[Figure] = []
    headlines: list[Headline] = []
    shown = (_over_capacity(sets) or [CellSet([], "", {}, [])]) if len(sets) > 1 else sets
    for at, curve in enumerate(curves or [None]):
        own = f"{prefix}curve{at + 1}-" if at else prefix
        rate = "token"
        for number, each in enumerate(shown, 1):
            rate = _rate_of(curve, each.cells)
            behind, slug = (_behind(each), f"{own}set{number}-" if number > 1 else own) if len(shown) > 1 else ("", own)
            figure = capacity_figure(curve, each.cells, rate, slug, behind)
            figures += [figure] if figure is not None else []
        if curve is not None:
            summary = curve.manifest["summary"]
            headlines += _curve_headlines(curve, rate)
            figures += [
                cumulated(summary[key], key, title, unit, own)
                for key, (title, unit) in REUSED.items()
                if summary.get(key)
            ]
    return Section(before + "Hit rate over capacity", figures=figures, headlines=headlines) if figures else None


def _rate_of(curve: ReportCurve | None, cells: Sequence[Cell]) -> str:
    """The rate over capacity: that of the curve's knee, or what all cells have."""
    if curve is not None:
        return str((curve.manifest["summary"]["knee"] or {}).get("rate", "token"))
    return rate_path(cells).rpartition(".")[2]


def _curve_headlines(curve: ReportCurve, rate: str) -> list[Headline]:
    summary, size = curve.manifest["summary"], curve.manifest["config"].get("block_bytes")

    def capacity(blocks: int) -> str:
        return format_bytes(blocks * size) if size else f"{format_count(blocks)} blocks"

    infinite, found = summary["infinite_rates"][rate], []
    if summary["knee"] is not None:
        knee = summary["knee"]
        gain = f"; more room adds at most {100 * (infinite - knee['value']):.2f} points" if infinite is not None else ""
        about = f"{percent(knee['value'])} {rate} hit rate with LRU there{gain}"
        found.append(Headline("knee of the curve", capacity(knee["capacity_blocks"]), about))
    if summary["saturation_blocks"] is not None:
        about = f"{percent(infinite)} {rate} hit rate, as with an infinite cache"
        found.append(Headline("nothing gained above", capacity(summary["saturation_blocks"]), about))
    if summary["sample"] is not None:
        about = f"{summary['sample']['requests']:,} requests; bands are error bars"
        found.append(Headline("sampled", percent(summary["sample"]["rate"]), about))
    return found


def _side_by_side(found: CellSet, runs: Sequence[ReportRun], prefix: str, before: str, behind: str) -> Section:
    """Cells of one kind; ``runs`` are those that they are of, if they are."""
    cells, headlines = found.cells, []
    rate = rate_path(cells)
    known = [cell for cell in cells if rate in cell.figures]
    paths = varied(cells)
    if known:
        best = max(known, key=lambda cell: cell.figures[rate])
        headlines.append(Headline("best hit rate", percent(best.figures[rate]), best.label(paths)))
    timed = [cell for cell in cells if TTFT_P99 in cell.figures]
    if timed:
        fastest = min(timed, key=lambda cell: cell.figures[TTFT_P99])
        headlines.append(
            Headline("lowest p99 TTFT", format_duration_ns(fastest.figures[TTFT_P99]), fastest.label(paths))
        )
    tables = [_cells_table(known, paths, rate)] if known else []
    tables += [_estimates(cell) for cell in known if cell.name and cell.low]
    if len(runs) > 1:
        rows = [[path, *texts] for path, texts in differing(runs).items()]
        tables.append(TableView("Settings in which the runs differ", ["setting", *(run.label for run in runs)], rows))
    for name, sweep in found.sweeps:
        if sweep.failed:
            rows = [
                [str(cell.number), ", ".join(f"{path} {value}" for path, value in cell.axes.items()), cell.error or ""]
                for cell in sweep.failed[:MAX_ROWS]
            ]
            title = f"Failed cells of {name}: {len(sweep.failed):,} of {len(sweep.cells):,}"
            tables.append(TableView(title, ["cell", "settings", "error"], rows))
    return Section(
        before + ("Configurations side by side" if len(cells) > 1 else "What the seeds found") + behind,
        headlines=headlines,
        figures=cell_figures(cells, prefix),
        tables=tables,
    )


def _cells_table(cells: Sequence[Cell], paths: Sequence[str], rate: str) -> TableView:
    bound, infinite = f"belady_{rate}", f"infinite_{rate}"
    columns: dict[str, Callable[[Cell], str]] = {
        f"{rate.rpartition('.')[2]} hit rate": lambda cell: percent(cell.figures[rate]),
        "gap to OPT": lambda cell: _points(cell.figures.get(bound), cell.figures[rate]),
        "gap to infinite": lambda cell: _points(cell.figures.get(infinite), cell.figures[rate]),
        "p99 TTFT": lambda cell: format_duration_ns(cell.figures[TTFT_P99]) if TTFT_P99 in cell.figures else "–",
    }
    # A run is told by its name, and what it differs in has a table of its own.
    told: dict[str, Callable[[Cell], str]] = {path: partial(Cell.setting, path=path) for path in paths}
    if any(cell.name for cell in cells):
        told = {"configuration": partial(Cell.label, paths=paths)}
    rows = [[show(cell) for show in (*told.values(), *columns.values())] for cell in cells]
    headers = [*told, *columns]
    shown = [at for at in range(len(headers)) if any(row[at] != "–" for row in rows)]
    note = f"The first {MAX_ROWS:,} of {len(rows):,}." if len(rows) > MAX_ROWS else ""
    return TableView(
        "All configurations",
        [headers[at] for at in shown],
        [[row[at] for at in shown] for row in rows[:MAX_ROWS]],
        note,
    )


def _estimates(cell: Cell) -> TableView:
    """The figures of a run under several seeds, and how sure they are."""
    rows = [
        [title, write(cell.figures[path]), f"{write(cell.low[path])} to {write(cell.high[path])}"]
        for path, (title, write) in SHOWN.items()
        if path in cell.low
    ]
    return TableView(f"{cell.name}: means over the seeds", ["figure", "mean", "95 % interval of the mean"], rows)


def _points(bound: float | None, rate: float) -> str:
    return "–" if bound is None else f"{100 * (bound - rate):.2f} points"


def _lead(material: Material) -> str:
    """What was run, in one line."""
    counts = {
        "run": len(material.runs),
        "curve": len(material.curves),
        "sweep": sum(len(each.sweeps) for each in material.sets),
        "configuration": len(material.seeds) + sum(len(each.cells) for each in material.sets),
    }
    parts = [f"{count:,} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    if len(material.runs) == 1:
        parts = _run_in_words(material.runs[0]) + [part for part in parts if part != "1 run"]
    return " · ".join(parts)


def _run_in_words(run: ReportRun) -> list[str]:
    config, trace = run.config, run.manifest["trace"]
    parts = [f"{run.summary['requests']['done']:,} requests"]
    if trace["block_tokens"]:
        parts.append(f"{trace['block_tokens']:,}-token blocks")
    workers = config["workers"]
    parts.append(f"{workers:,} worker{'s' if workers > 1 else ''}")
    parts += [str(config[key]["name"]) for key in ("router", "compute") if isinstance(config.get(key), dict)]
    if config.get("tiers"):
        parts.append(" + ".join(tier["name"] for tier in config["tiers"]))
    return parts


def _provenance(material: Material) -> Section:
    """What the files were made of: versions, traces and every setting."""
    tables = []
    for manifest, names in _by_manifest(material.manifests):
        facts = [(f"trace.{key}", value) for key, value in manifest["trace"].items()]
        versions = [("kvbench", manifest["kvbench"]), *manifest.get("plugins", {}).items()]
        rows = [[key, "–" if value is None else str(value)] for key, value in (*versions, *facts)]
        rows += [list(pair) for pair in settings_of(manifest)]
        tables.append(TableView(f"Settings and trace of {', '.join(names)}", ["setting", "value"], rows, folded=True))
    text = "Equal trace, settings, seed and versions give equal figures on any machine; these are all of them."
    return Section("How it was made", text=[text], tables=tables)


def _by_manifest(manifests: Mapping[str, dict[str, Any]]) -> list[tuple[dict[str, Any], list[str]]]:
    """Each manifest once, with the names of the files that have it."""
    found: list[tuple[dict[str, Any], list[str]]] = []
    for name, manifest in manifests.items():
        known = next((names for each, names in found if each == manifest), None)
        if known is None:
            found.append((manifest, [name]))
        else:
            known.append(name)
    return found
