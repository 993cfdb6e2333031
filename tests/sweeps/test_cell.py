"""One cell: the replay's figures, and nothing raised."""

import pickle

import pyarrow as pa
import pytest

import kvbench
from kvbench.sweeps.cell import run_cell
from kvbench.sweeps.executor import CellTask

CHAT = "traces/chat.arrow"


def task(**settings):
    return CellTask(number=7, settings={"trace": CHAT, **settings}, autoload=False)


def test_a_cell_has_the_manifest_and_the_summary_of_the_same_replay():
    outcome = run_cell(task(capacity="10%", policy="arc"))
    result = kvbench.replay(CHAT, capacity="10%", policy="arc")
    assert (outcome.number, outcome.status, outcome.error) == (7, "done", None)
    assert (outcome.manifest, outcome.summary) == (result.manifest, result.summary)


def test_a_source_stands_in_for_the_trace_of_the_settings():
    with pa.memory_map(CHAT) as file:
        table = pa.ipc.open_file(file).read_all()
    outcome = run_cell(CellTask(number=0, settings={"trace": "elsewhere.arrow", "capacity": 100}), table)
    assert outcome.summary == run_cell(task(capacity=100)).summary


def test_parts_are_chosen_from_the_registry_that_is_given(monkeypatch):
    known = kvbench.load_registry(autoload=False)
    monkeypatch.setattr("kvbench.sweeps.cell.load_registry", None)  # as a Ray worker, which loads parts once, has it
    assert run_cell(task(capacity=100), registry=known).status == "done"
    assert run_cell(task(capacity=100)).status == "failed"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"policy": "lruu", "capacity": 10}, "unknown eviction policy 'lruu'; did you mean 'lru'?"),
        ({"trace": "gone.arrow"}, "gone.arrow"),
        ({"capacity": [1, 2]}, "one replay has one capacity"),
        ({"colour": 1}, "unknown key 'colour'"),
    ],
)
def test_what_goes_wrong_is_an_outcome_on_one_line(settings, error):
    outcome = run_cell(task(**settings))
    assert outcome.status == "failed"
    assert error in outcome.error
    assert "\n" not in outcome.error
    assert outcome.summary is None


def test_an_error_that_kvbench_does_not_know_is_an_outcome_too(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("kvbench.sweeps.cell.run_replay", broken)
    assert run_cell(task()).error == "RuntimeError: two lines"


def test_the_function_a_task_and_an_outcome_go_to_another_process():
    function, cell = pickle.loads(pickle.dumps((run_cell, task(capacity=10))))
    assert pickle.loads(pickle.dumps(function(cell))).summary == run_cell(cell).summary
