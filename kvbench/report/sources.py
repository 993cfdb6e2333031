"""What a report is made of, from files that kvbench wrote; each is told by what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from kvbench.errors import OutputError
from kvbench.report.cells import NAMED, Cell, cell_of_seeds, cells_of_matrix, cells_of_sweep, in_words, numbers_in
from kvbench.results.curvetable import CURVE_SCHEMA
from kvbench.results.parquet import read_manifest
from kvbench.results.repeats import leaves
from kvbench.results.runfile import PARQUET_MAGIC, REQUESTS_COLUMNS, Run, read_run, reading
from kvbench.results.timedtimeline import TIMED_TIMELINE_SCHEMA
from kvbench.results.timeline import TIMELINE_SCHEMA
from kvbench.sweeps.file import read_sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbench.sweeps.result import SweepResult

READS = "give what kvbench replay (-o, --timeline, --json), curve -o or sweep -o wrote"


@dataclass(slots=True)
class ReportRun:
    """One run: its document or requests file, and its timeline.

    ``label``     what tells it from the other runs of a report.
    ``summary``   of the document where there is one, else of the rows.
    """

    label: str
    manifest: dict[str, Any]
    summary: dict[str, Any]
    requests: Path | None = None
    timeline: Path | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration."""
        config: dict[str, Any] = self.manifest["config"]
        return config


@dataclass(frozen=True, slots=True)
class ReportCurve:
    """A curve file: its manifest, with the summary in it, and the file."""

    manifest: dict[str, Any]
    path: Path


@dataclass(slots=True)
class CellSet:
    """Cells that stand side by side: of one file, or of several that differ in the same settings and in no other.

    ``names``    of the files.
    ``digest``   of the trace's rows.
    ``settings`` all that its cells have in common, by path.
    ``sweeps``   the files that are sweeps, as they were read: what failed in them is in no cell.
    """

    names: list[str]
    digest: str
    settings: dict[str, Any]
    cells: list[Cell]
    sweeps: list[tuple[str, SweepResult]] = field(default_factory=list)

    @property
    def axes(self) -> set[str]:
        """What its cells are told apart by."""
        return {path for cell in self.cells for path in cell.settings}

    def joins(self, other: CellSet) -> bool:
        """Whether ``other`` has cells of the same kind. Cells of others would not be told apart, or by names that mean
        nothing to half of them."""
        return (self.digest, self.settings, self.axes) == (other.digest, other.settings, other.axes)

    def take(self, other: CellSet) -> None:
        """Add the cells of ``other`` that are not there yet."""
        known = [cell.settings for cell in self.cells]
        self.names += other.names
        self.cells += [cell for cell in other.cells if cell.settings not in known]
        self.sweeps += other.sweeps


@dataclass(slots=True)
class Material:
    """All that a report is about.

    ``seeds``  a cell for each replay under several seeds.
    ``sets``   the cells of matrices and sweeps.
    """

    runs: list[ReportRun] = field(default_factory=list)
    curves: list[ReportCurve] = field(default_factory=list)
    seeds: list[Cell] = field(default_factory=list)
    sets: list[CellSet] = field(default_factory=list)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, found: CellSet) -> None:
        """Put the cells of a file where they belong."""
        for known in self.sets:
            if known.joins(found):
                known.take(found)
                return
        self.sets.append(found)


def read_material(paths: Sequence[str | Path]) -> Material:
    """What the files hold; a run, its requests file and its timeline are brought together by their manifests.

    Raises OutputError for a file that kvbench did not write, or that has nothing to draw, and for a timeline whose
    run is not among the files.
    """
    material = Material()
    timelines: list[tuple[Path, dict[str, Any]]] = []
    for path in map(Path, paths):
        with reading(path):
            with path.open("rb") as file:
                is_parquet = file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
            if is_parquet:
                _read_table(path, material, timelines)
            else:
                _read_document(path, material)
    for path, manifest in timelines:
        _join_timeline(path, manifest, material.runs)
    _name_runs(material.runs)
    return material


def _read_table(path: Path, material: Material, timelines: list[tuple[Path, dict[str, Any]]]) -> None:
    manifest = read_manifest(path)
    columns = set(pq.read_schema(path).names)
    material.manifests[path.name] = manifest
    if "axes" in manifest:
        sweep = read_sweep(path)
        found = CellSet([path.name], manifest["trace"]["digest"], manifest["config"], cells_of_sweep(sweep))
        found.sweeps.append((path.name, sweep))
        material.add(found)
    elif columns >= set(REQUESTS_COLUMNS):
        _add_run(read_run(path), material.runs)
    elif columns >= set(CURVE_SCHEMA.names):
        material.curves.append(ReportCurve(manifest, path))
    elif columns >= set(TIMED_TIMELINE_SCHEMA.names) or columns >= set(TIMELINE_SCHEMA.names):
        timelines.append((path, manifest))
    else:
        raise OutputError(f"{path} has nothing that a report shows; {READS}")


def _read_document(path: Path, material: Material) -> None:
    try:
        document = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        raise OutputError(f"{path} is neither a Parquet file nor JSON; {READS}") from None
    if not isinstance(document, dict) or not {"kvbench", "config", "trace"} <= document.keys():
        raise OutputError(f"{path} is no result of kvbench; {READS}")
    if "curve" in document:
        raise OutputError(f"{path} is what curve --json printed, which has some capacities only; give what -o wrote")
    if "cells" in document:
        shared = {key: value for key, value in document["config"].items() if key not in ("capacity", *NAMED)}
        material.add(CellSet([path.name], document["trace"]["digest"], shared, cells_of_matrix(document)))
    elif "figures" in document:
        material.seeds.append(cell_of_seeds(document, path.stem))
    else:
        _add_run(read_run(path), material.runs)
    material.manifests[path.name] = {
        key: value
        for key, value in document.items()
        if key not in ("requests", "cells", "figures", "summaries", "summary", "wall_clock")
    }


def _add_run(run: Run, runs: list[ReportRun]) -> None:
    """Add a run, or what is new of one that is there."""
    for known in runs:
        if _same(known.manifest, run.manifest):
            known.requests = known.requests or run.rows
            if run.rows is None:
                known.summary = run.summary
            return
    runs.append(ReportRun(Path(run.name).stem, run.manifest, run.summary, run.rows))


def _join_timeline(path: Path, manifest: dict[str, Any], runs: list[ReportRun]) -> None:
    for run in runs:
        if _same(run.manifest, manifest):
            run.timeline = path
            return
    raise OutputError(
        f"{path} is the timeline of a run that is not among the files; give what -o or --json of the same replay wrote"
    )


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two files are of one run."""
    return all(one.get(key) == other.get(key) for key in ("config", "kvbench", "plugins", "files")) and (
        one["trace"]["digest"] == other["trace"]["digest"]
    )


def _name_runs(runs: list[ReportRun]) -> None:
    """Give runs of files of one name different labels."""
    taken: dict[str, int] = {}
    for run in runs:
        count = taken[run.label] = taken.get(run.label, 0) + 1
        if count > 1:
            run.label = f"{run.label} {count}"


def cells_of_runs(runs: Sequence[ReportRun]) -> list[Cell]:
    """The runs as cells, told apart by their labels."""
    return [
        Cell(
            run.manifest["trace"]["digest"],
            run.config,
            numbers_in(run.summary),
            block_bytes=run.config.get("block_bytes"),
            name=run.label,
        )
        for run in runs
    ]


def differing(runs: Sequence[ReportRun]) -> dict[str, list[str]]:
    """Settings that are not the same in all runs, by path: in words, one a run."""
    settings = [dict(settings_of(run.manifest)) for run in runs]
    paths = dict.fromkeys(path for each in settings for path in each)
    found = {path: [each.get(path, "–") for each in settings] for path in paths}
    return {path: texts for path, texts in found.items() if len(set(texts)) > 1}


def settings_of(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every setting of a manifest's configuration by its path, in words."""
    return [(path, in_words(value)) for path, value in leaves(manifest.get("config", {}))]
