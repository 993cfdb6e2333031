"""The figures over configurations: hit rates over capacity, policies and routers side by side, settings that vary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.cells import Cell, as_number
from kvbench.report.figure import Figure, bars, lines, matrix, points
from kvbench.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

MAX_SERIES = 8
"""Of more, those with the best rates are drawn."""

MAX_CELLS = 60
"""Of a matrix, bars and points; of more cells the first are drawn."""

NAMED = 16
"""More points than these have no names beside them."""

RATE = "rates.token"
BLOCK_RATE = "rates.block"
TTFT_P99 = "timed.ttft_ns.p99"
LOADS = ("workers.max_over_mean_computed_tokens", "max_over_mean_computed_tokens")
PARTS = ("queue", "fetch", "prefill")
CAPACITY = "capacity_blocks"


def rate_path(cells: Sequence[Cell]) -> str:
    """The rate that is shown: of tokens, or of blocks where one has no tokens."""
    return RATE if all(RATE in cell.figures for cell in cells) else BLOCK_RATE


def varied(cells: Sequence[Cell]) -> list[str]:
    """Settings that are not the same in all cells."""
    paths = sorted(dict.fromkeys(path for cell in cells for path in cell.settings), key=lambda path: path == "capacity")
    return [path for path in paths if len({cell.setting(path) for cell in cells}) > 1]


def cell_figures(cells: Sequence[Cell], prefix: str = "") -> list[Figure]:
    """All that cells of one trace have the figures for; ``prefix`` stands before their names."""
    rate = rate_path(cells)
    cells = [cell for cell in cells if rate in cell.figures]
    if not cells:
        return []
    paths = varied(cells)
    found = [*_matrices(cells, paths, rate, prefix), *_fronts(cells, paths, rate, prefix)]
    found += _parts(cells, paths, prefix)
    for path in paths:
        if path != "capacity" and not any(cell.name for cell in cells):
            found += _along(cells, paths, path, rate, prefix)
    return found


def _size(cell: Cell, *, in_bytes: bool) -> str:
    blocks = cell.figures.get(CAPACITY)
    if blocks is None:
        return "infinite"
    return format_bytes(int(blocks * cell.block_bytes)) if in_bytes and cell.block_bytes else format_count(blocks)


def _matrices(cells: Sequence[Cell], paths: Sequence[str], rate: str, prefix: str) -> list[Figure]:
    """What is set by capacity: the rate, and what is missing to that of the Belady bound."""
    rows_paths = [path for path in paths if path != "capacity"]
    ordered = sorted(cells[:MAX_CELLS], key=lambda cell: cell.figures.get(CAPACITY, float("inf")))
    in_bytes = all(cell.block_bytes for cell in cells)
    names = list(dict.fromkeys(cell.label(rows_paths) for cell in cells))
    rows: list[Row] = []
    for cell in sorted(ordered, key=lambda cell: names.index(cell.label(rows_paths))):
        bound = cell.figures.get("belady_" + rate)
        row: Row = {"configuration": cell.label(rows_paths), "capacity": _size(cell, in_bytes=in_bytes)}
        row |= {"hit_rate": cell.figures[rate], "gap_to_opt": None if bound is None else bound - cell.figures[rate]}
        rows.append(row)
    columns = list(dict.fromkeys(_size(cell, in_bytes=in_bytes) for cell in ordered))
    rows.sort(key=lambda row: (names.index(row["configuration"]), columns.index(row["capacity"])))
    if len(names) < 2 or len(columns) < 2 or len(rows) * 2 < len(names) * len(columns):
        return []
    note = f"The first {MAX_CELLS} of {len(cells)} configurations." if len(cells) > MAX_CELLS else ""
    about: dict[str, Any] = {
        "row": "configuration",
        "column": "capacity",
        "row_title": ", ".join(rows_paths) if not any(cell.name for cell in cells) else "configuration",
    }
    about |= {"column_title": "capacity" if in_bytes else "capacity (blocks)", "percent": True}
    found = [
        matrix(
            f"{prefix}matrix",
            "Hit rate by capacity",
            rows,
            value="hit_rate",
            value_title="hit rate",
            note=note,
            **about,
        )
    ]
    if all(row["gap_to_opt"] is not None for row in rows):
        note = " ".join([note, "OPT (Belady) knows the future: no policy does better. The gap is in points."]).strip()
        title = "gap to OPT"
        found.append(
            matrix(f"{prefix}gap", "Gap to OPT", rows, value="gap_to_opt", value_title=title, note=note, **about)
        )
    return found


def _fronts(cells: Sequence[Cell], paths: Sequence[str], rate: str, prefix: str) -> list[Figure]:
    """The hit rate against what is paid for it: the slowest first tokens, and uneven load."""
    found = []
    load = next((path for path in LOADS if any(path in cell.figures for cell in cells)), LOADS[0])
    for name, path, y, y_title, title, scale in (
        ("pareto", TTFT_P99, "ttft_p99_ms", "p99 TTFT (ms)", "Hit rate and slow first tokens", 1e6),
        ("load", load, "max_over_mean_load", "busiest worker / mean (computed tokens)", "Hit rate and even load", 1),
    ):
        having = [cell for cell in cells if path in cell.figures][:MAX_CELLS]
        if len(having) >= 2 and (path == TTFT_P99 or "router" in paths):
            rows = [_priced(cell, paths, rate, path, y, scale) for cell in having]
            rows = marked(rows, [(-row["hit_rate"], row[y]) for row in rows])
            found.append(_front(f"{prefix}{name}", title, rows, y, y_title))
    return found


def _priced(cell: Cell, paths: Sequence[str], rate: str, path: str, y: str, scale: float) -> Row:
    """A point: coloured by its router, or else its policy, with the other settings beside it."""
    kind = next((path for path in ("router", "policy") if path in paths and not cell.name), None)
    rest = cell.label([path for path in paths if path != kind]) if kind is not None else ""
    row: Row = {"kind": cell.setting(kind) if kind is not None else cell.label(paths), "others": rest}
    row |= {"hit_rate": cell.figures[rate], y: cell.figures[path] / scale}
    if path in cell.low:
        row |= {f"{y}_low": max(cell.low[path], 0) / scale, f"{y}_high": cell.high[path] / scale}
    if rate in cell.low:
        row |= {"hit_rate_low": cell.low[rate], "hit_rate_high": cell.high[rate]}
    return row


def marked(rows: list[Row], prices: Sequence[tuple[float, float]]) -> list[Row]:
    """``rows`` with whether no other one is as low in both ``prices`` and lower in one."""
    beaten = [any(a <= c and b <= d and (a, b) != (c, d) for a, b in prices) for c, d in prices]
    return [{**row, "on_front": not each} for row, each in zip(rows, beaten, strict=True)]


def _front(name: str, title: str, rows: list[Row], y: str, y_title: str) -> Figure:
    ends: dict[str, Any] = {end: f"{y}_{end}" for end in ("low", "high") if f"{y}_{end}" in rows[0]}
    ends |= {f"x_{end}": f"hit_rate_{end}" for end in ("low", "high") if f"hit_rate_{end}" in rows[0]}
    kinds = len({row["kind"] for row in rows})
    return points(
        name,
        title,
        rows,
        x="hit_rate",
        y=y,
        x_title="hit rate",
        y_title=y_title,
        series="kind" if kinds <= MAX_SERIES else None,
        series_title="configuration",
        label="others" if len(rows) <= NAMED and any(row["others"] for row in rows) else None,
        x_percent=True,
        front="on_front",
        note="Right and low is better; a line joins what nothing else beats in both."
        + (" Bars are 95 % intervals over the seeds." if ends else ""),
        **ends,
    )


def _parts(cells: Sequence[Cell], paths: Sequence[str], prefix: str) -> list[Figure]:
    timed = [cell for cell in cells if all(f"timed.{part}_ns.mean" in cell.figures for part in PARTS)][:MAX_CELLS]
    rows = [
        {
            "configuration": cell.label(paths),
            "part": part,
            "milliseconds": cell.figures[f"timed.{part}_ns.mean"] / 1e6,
        }
        for cell in timed
        for part in PARTS
    ]
    if not timed:
        return []
    return [
        bars(
            f"{prefix}ttft-parts-by-configuration",
            "What TTFT is made of, by configuration",
            rows,
            x="configuration",
            y="milliseconds",
            x_title="",
            y_title="mean TTFT (ms)",
            series="part",
            horizontal=True,
        )
    ]


def _along(cells: Sequence[Cell], paths: Sequence[str], path: str, rate: str, prefix: str) -> list[Figure]:
    """Rate and slow first tokens along a setting that is a number."""
    values = [as_number(cell.settings.get(path)) for cell in cells]
    if None in values or len(set(values)) < 2:
        return []
    others = [other for other in paths if other != path]
    slug, x = path.replace(".", "-").replace("_", "-"), path.replace(".", "_")
    found = []
    for name, figure, title, scale in (
        ("rate", rate, "hit rate", 1.0),
        ("ttft", TTFT_P99, "p99 TTFT (ms)", 1e6),
    ):
        key = "hit_rate" if name == "rate" else "ttft_p99_ms"
        rows: list[Row] = [
            {x: value, "configuration": cell.label(others) or "all", key: cell.figures[figure] / scale}
            for cell, value in zip(cells, values, strict=True)
            if figure in cell.figures
        ]
        rows, note = fewest(rows, "configuration", key, highest=name == "rate")
        if len({row[x] for row in rows}) > 1:
            rows.sort(key=lambda row: row[x])
            more: dict[str, Any] = {"series": "configuration"} if others else {}
            more |= {"x": x, "y": key, "x_title": path, "y_title": title, "percent": name == "rate"}
            about = f"{title[:1].upper()}{title[1:]} over {path}"
            found.append(lines(f"{prefix}{name}-over-{slug}", about, rows, note=note, **more))
    return found


def fewest(rows: list[Row], series: str, value: str, *, highest: bool) -> tuple[list[Row], str]:
    """The rows of the MAX_SERIES best series, in the order of their first appearance, and a note on the others."""
    best: dict[str, float] = {}
    sign = 1 if highest else -1
    for row in rows:
        best[row[series]] = max(best.get(row[series], float("-inf")), sign * row[value])
    if len(best) <= MAX_SERIES:
        return rows, ""
    kept = sorted(best, key=lambda name: -best[name])[:MAX_SERIES]
    return [row for row in rows if row[series] in kept], f"The best {MAX_SERIES} of {len(best)} are drawn."
