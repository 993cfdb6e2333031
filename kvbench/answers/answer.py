"""What a recipe is given and what it gives: a recommendation, the tables it rests on, and their charts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.answers.recipes import RECIPES
from kvbench.atomic import atomic_path
from kvbench.errors import OutputError
from kvbench.report.charts import Sheet, missing_libraries, save
from kvbench.results.result import RESULT_VERSION, plugin_versions, trace_facts
from kvbench.results.tidy import write_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.replays.curve import CurvePass
    from kvbench.replays.plan import Plan
    from kvbench.report.figure import Figure
    from kvbench.sweeps.executor import Executor
    from kvbench.trace.reader import Trace

ANSWER_FILE = "answer.json"
TABLE_SUFFIXES = (".parquet", ".csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every recipe is given.

    ``config``    the trace, how its prompts become blocks, and how large those are.
    ``row_progress``  called with the rows of a pass that are done and those there are (or None).
    ``cell_progress``  called with the replays that are done and those there are.
    ``executor``  runs the cells of a sweep; None: this process.
    ``clock``     seconds of a clock, to measure with; None: nothing is measured.
    ``folder``    where sweeps keep their cells, so that an answer that was interrupted goes on; None: nowhere.
    ``autoload``  whether installed plugins count where cells run.
    ``files``     that the recipe has written into ``folder``.
    """

    config: RunConfig
    registry: Registry
    row_progress: Callable[[int, int | None], None] | None = None
    cell_progress: Callable[[int, int | None], None] | None = None
    executor: Executor | None = None
    clock: Callable[[], float] | None = None
    folder: Path | None = None
    force: bool = False
    autoload: bool = True
    files: list[Path] = field(default_factory=list)

    def passed(self, found: CurvePass, trace: Trace) -> CurvePass:
        """``found`` after its pass over ``trace``."""
        done = 0
        for rows in found.run():
            done += rows
            if self.row_progress is not None:
                self.row_progress(done, trace.rows)
        return found

    def file(self, name: str) -> str | None:
        """Where a file of this answer is; None where it is kept nowhere."""
        if self.folder is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files.append(self.folder / name)
        return str(self.folder / name)


@dataclass(slots=True, kw_only=True)
class Answer:
    """The answer to one of the ten questions.

    ``question``  its name, as typed.
    ``advice``    short sentences with the numbers they rest on, the recommendation first.
    ``tables``    by name; units are in the names of the columns.
    ``manifest``  versions, settings and trace: equal for equal answers.
    ``wall_clock``  what was measured; it differs from time to time and is in no file.
    """

    question: str
    advice: list[str]
    tables: dict[str, pa.Table]
    manifest: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    wall_clock: dict[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from kvbench.answers.cells import answer_html

        return answer_html(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it but the charts as plain values."""
        return {
            **self.manifest,
            "question": self.question,
            "advice": self.advice,
            "tables": {name: table.to_pylist() for name, table in self.tables.items()},
        }


def manifest_of(plan: Plan, trace: Trace, registry: Registry, **options: Any) -> dict[str, Any]:
    """The manifest of an answer that rests on one pass over ``trace``, which has been read; ``options`` are the
    question's own."""
    return {
        "version": RESULT_VERSION,
        **plugin_versions([plan], registry),
        "config": plan.to_dict(None) | options,
        "trace": trace_facts(trace),
    }


def check_folder(folder: Path, *, force: bool) -> None:
    """Raise OutputError where :func:`write_answer` would: before the work, not after it."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is no folder; an answer is written as several files into one")
    if (folder / ANSWER_FILE).exists() and not force:
        raise OutputError(f"{folder / ANSWER_FILE} exists; give --force to replace the answer")


def write_answer(answer: Answer, folder: Path, *, force: bool, images: tuple[str, ...] = ()) -> list[Path]:
    """Write tables (Parquet and CSV), charts (HTML, and ``images``: ``.png``, ``.svg``) and ``answer.json``, each
    whole or not at all; ``answer.json`` comes last. Without the libraries that draw, there are no charts. Returns what
    was written."""
    check_folder(folder, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in answer.tables.items():
        for suffix in TABLE_SUFFIXES:
            path = folder / f"{name}{suffix}"
            write_table(table, path, answer.manifest, force=True)
            written.append(path)
    for figure in answer.figures if not missing_libraries() else ():
        for suffix in (".html", *images):
            path = folder / f"{figure.name}{suffix}"
            save(Sheet(_title(answer), [figure], answer.manifest), path, force=True)
            written.append(path)
    path = folder / ANSWER_FILE
    with atomic_path(path, force=True) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(answer.to_dict()), indent=2))
    return [*written, path]


def _title(answer: Answer) -> str:
    """The question, and the trace that it is asked of."""
    trace = answer.manifest["trace"]
    return f"{RECIPES[answer.question].question} {trace['source_name'] or trace['digest']}"
