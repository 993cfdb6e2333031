"""What a sweep runs: axes, ranges, combinations, and what is refused before anything runs."""

import pytest

from kvbench.errors import ConfigError
from kvbench.sweeps.plan import make_plan
from kvbench.sweeps.values import expand, split_values


def axes(**vary):
    return make_plan("trace", vary={path.replace("__", "."): values for path, values in vary.items()}).axes


def test_a_piece_with_an_equals_sign_belongs_to_the_value_before_it():
    assert split_values("lru,s3-fifo,small=0.1,arc") == ["lru", "s3-fifo,small=0.1", "arc"]
    assert axes(policy="lru, s3-fifo, small=0.1,arc") == {"policy": ["lru", "s3-fifo,small=0.1", "arc"]}


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("1k..1M:4", "text", [1000, 10_000, 100_000, 1_000_000]),
        ("1k..10k", "text", [1000, 1259, 1585, 1995, 2512, 3162, 3981, 5012, 6310, 7943, 10_000]),
        ("1GiB..4GiB:3", "text", ["1GiB", "2GiB", "4GiB"]),
        ("1GB..10GB:3", "text", ["1GB", "3162277660B", "10GB"]),
        ("1%..100%:3", "text", ["1%", "10%", "100%"]),
        ("10ms..1s:3", "text", ["10ms", "100ms", "1000ms"]),
        ("0..9", "whole", list(range(10))),
        ("1..64:4", "whole", [1, 4, 16, 64]),
        ("1..3:5", "whole", [1, 2, 3]),
        ("0.5..8:5", "number", [0.5, 1, 2, 4, 8]),
        ("0..1:5", "number", [0, 0.25, 0.5, 0.75, 1]),
        ("7..7", "number", [7]),
        ("../models.toml", "text", ["../models.toml"]),
    ],
)
def test_a_range_is_evenly_spaced_in_the_logarithm_with_its_ends_exact(text, kind, values):
    assert list(expand(text, kind, "x")) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10k..1k", "the range goes down"),
        ("1k..1GiB", "units of one kind"),
        ("1k..", "not a number"),
        ("1k..1M:one", "must be a number of points"),
        ("0..1k", "has no decades"),
    ],
)
def test_a_range_that_is_none_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        axes(capacity=text)


def test_whole_numbers_are_counted_and_values_have_the_type_of_their_setting():
    found = axes(seed="0..2", workers="1,2", arrivals__rate="1,2.5", policy__small="0.1,0.2", belady="on")
    assert found == {
        "workers": [1, 2],
        "arrivals.rate": [1.0, 2.5],
        "policy.small": [0.1, 0.2],
        "belady": ["on"],
        "seed": [0, 1, 2],  # innermost, wherever it was given
    }


def test_seeds_go_on_from_the_seed_whichever_of_the_two_stands_in_the_file(tmp_path):
    file = tmp_path / "sweep.toml"
    for text, given in (("seed = 5", {"seeds": 3}), ("seeds = 3", {"seed": 5}), ("seed = 1\nseeds = 3", {"seed": 5})):
        file.write_text(f'trace = "t"\npolicy = "random"\n{text}\n')
        plan = make_plan(None, file=file, settings=given)
        assert (plan.axes, plan.base) == ({"seed": [5, 6, 7]}, {"policy": "random"})


def test_several_capacities_policies_and_routers_and_seeds_of_a_replay_are_axes():
    settings = {"capacity": "1k,10%", "policy": ["lru", "arc"], "router": ["random"], "seeds": 2, "seed": 5}
    plan = make_plan("trace", settings=settings | {"workers": 2})
    assert plan.axes == {"capacity": [1000, "10%"], "policy": ["lru", "arc"], "router": ["random"], "seed": [5, 6]}
    assert plan.base == {"workers": 2}
    cells = plan.cells()
    assert len(cells) == 8
    assert [cell.axes["seed"] for cell in cells[:3]] == [5, 6, 5]
    assert cells[7].settings == {"workers": 2, "capacity": "10%", "policy": "arc", "router": "random", "seed": 6}


SWEEP_FILE = """
trace = "here.arrow"
workers = 2
policy = "s3-fifo"
tiers = [{name = "gpu", capacity = "1k"}, {name = "cpu", capacity = "9k"}]

[grid]
tiers.cpu.capacity = "10k..1M:3"
policy.small = [0.1, 0.2]

[[cell]]
router = "random"

[[cell]]
router = "max-prefix"
arrivals.rate = 2
"""


def test_a_file_has_shared_settings_combinations_and_a_grid_that_is_taken_for_each(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP_FILE)
    plan = make_plan(None, file=path, vary={"policy.small": "0.3"})
    assert plan.trace == "here.arrow"
    cells = plan.cells()
    assert [list(cell.axes.values()) for cell in cells] == [
        ["random", None, 10_000, 0.3],
        ["random", None, 100_000, 0.3],
        ["random", None, 1_000_000, 0.3],
        ["max-prefix", 2, 10_000, 0.3],
        ["max-prefix", 2, 100_000, 0.3],
        ["max-prefix", 2, 1_000_000, 0.3],
    ]
    assert cells[4].settings == {
        "workers": 2,
        "policy": {"name": "s3-fifo", "small": 0.3},
        "tiers": [{"name": "gpu", "capacity": "1k"}, {"name": "cpu", "capacity": 100_000}],
        "router": "max-prefix",
        "arrivals": {"rate": 2.0},
    }


def test_stacks_of_tiers_are_values_of_one_axis():
    plan = make_plan("trace", vary={"tiers": ["gpu,capacity=1k", "gpu,capacity=1k; cpu,capacity=9k,policy=arc"]})
    first, second = (cell.settings["tiers"] for cell in plan.cells())
    assert first == [{"name": "gpu", "capacity": "1k"}]
    assert second[1] == {"name": "cpu", "capacity": "9k", "policy": "arc"}


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"capcity": "1k"}, "unknown setting 'capcity'; did you mean 'capacity'"),
        ({"arrivals.rat": "1"}, "did you mean 'rate'"),
        ({"output": "x"}, "cells cannot differ in output"),
        ({"workers": "two"}, "must be a whole number"),
        ({"order": "sideways"}, "unknown order 'sideways'"),
        ({"capacity": []}, "no value is given"),
        ({"seed": "0..999999999"}, "say how many"),
        ({"seed": "0..999", "workers": "1..999"}, "at most 100,000 cells; this one has 999,000"),
        ({"tiers.cpu.capacity": "1k"}, "nothing is called 'cpu'"),
        ({"policy.small": "0.1"}, "policy names none"),
        ({"workers.x": "1"}, "workers has no keys"),
    ],
)
def test_what_no_cell_could_do_with_is_refused_before_any_runs(vary, message):
    with pytest.raises(ConfigError, match=message):
        make_plan("trace", vary=vary).cells()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output = 'x'", "output has no place in a sweep"),
        ("colour = 1", "unknown key 'colour'"),
        ("grid = 1", "grid must be a table"),
        ("cell = 1", "write \\[\\[cell\\]\\] above each"),
        ("workers = 1\n[grid]\nworkers = [1]", "stands in \\[grid\\] and among"),
        ("[grid]\nworkers = [1]\n[[cell]]\nworkers = 2", "stands in a \\[\\[cell\\]\\] and in the grid"),
        ("[grid]\nworkers = ['x']", "must be a whole number"),
    ],
)
def test_a_sweep_file_that_contradicts_itself_is_refused(tmp_path, text, message):
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_plan("trace", file=path).cells()
