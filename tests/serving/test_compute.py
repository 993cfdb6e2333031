"""Compute models against published values, and what is said of impossible ones.

T-1 … T-8 are rows of the field's compute models, OP-67 is a row of the predecessors' behaviours.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvbench.builtin_compute import _GPUS, _PROFILES
from kvbench.errors import ArgumentError, ConfigError, PolicyError
from kvbench.plugins import load_registry
from kvbench.replays.parts import choose
from kvbench.serving import ComputeContext, ComputeModel, ComputeStep, PythonComputeModel
from kvbench.serving.gpus import load_gpus
from kvbench.serving.profiles import load_profiles
from kvbench.specs import ComputeModelSpec

REGISTRY = load_registry(autoload=False)
FIXED = "fixed,prefill_ms_per_token=0.1,decode_ms=20"


def model(choice: str, **context: Any) -> ComputeModel:
    made: ComputeModel = choose(REGISTRY, ComputeModelSpec, choice, "--compute").make(ComputeContext(**context))
    return made


def ms(time_ns: float) -> float:
    return time_ns / 1e6


def test_t_1_poly_has_the_values_of_dynamo() -> None:
    poly = model("poly")
    prefills = [ms(poly.prefill_time_ns(tokens)) for tokens in (1, 512, 2_048, 8_192, 32_768)]
    assert prefills == pytest.approx([16.516604, 24.39, 49.36, 169.14, 966.08], abs=0.006)
    decodes = [ms(poly.step_time_ns([], 1, used, used, 100)) for used in (0, 25, 50, 75, 100)]
    assert decodes == pytest.approx([5.74, 17.634, 26.31, 31.769, 34.01], abs=0.0005)
    assert poly.step_time_ns([], 1, 10**6) == 5_740_000, "a GPU without bound is never full"


def test_t_4_power_has_the_values_of_aibrix() -> None:
    power = model("power")
    prefills = [ms(power.prefill_time_ns(tokens)) for tokens in (512, 2_048, 8_192, 32_768)]
    assert prefills == pytest.approx([16.59, 97.68, 746.46, 5_936.6], abs=0.05)
    assert power.prefill_time_ns(512, 1_000) - power.prefill_time_ns(512) == 6_000_000


def test_t_2_profiles_fit_the_prompts_they_are_made_for() -> None:
    eight, seventy = model("linear,profile=8b-h100"), model("linear,profile=70b-h100-tp8")
    assert (ms(eight.prefill_time_ns(256)), ms(seventy.prefill_time_ns(256))) == (94, 208)
    assert ms(eight.step_time_ns([], 256, 256)) == pytest.approx(2 * 12), "twice as long at full load"
    assert ms(model("linear,profile=8b-h100,load_factor=1,decode_ms=7").step_time_ns([], 300)) == 7


def test_t_7_preble_has_the_pieces_of_its_fit() -> None:
    preble = model("preble")
    for tokens, linear, attention, long in ((100, 22, 0.32, 0), (1_000, 112.635487, 0.32, 0), (8_192, 0, 0, 0)):
        if tokens == 8_192:
            linear, attention, long = 892.433115, 1.682712, 169.20588
        assert ms(preble.prefill_time_ns(tokens)) == pytest.approx((linear + attention + long) / 0.9, rel=1e-6)
    assert model("preble,slowness=2.5").prefill_time_ns(900) == pytest.approx(2.5 * preble.prefill_time_ns(900), abs=2)


def test_t_8_fixed_counts_a_prompt_once_however_it_is_cut() -> None:
    fixed = model("fixed,prefill_ms_per_token=0.1,decode_ms=20,prompt_ms=7")
    whole = fixed.step_time_ns([(300, 50, 50)])
    assert whole == 37_000_000
    assert fixed.step_time_ns([(100, 50, 50)]) + fixed.step_time_ns([(200, 150, 0)]) == whole


def test_op_67_two_equal_prefills_in_one_batch_take_longer_than_one() -> None:
    for choice in (FIXED, FIXED + ",mix=max", "poly,mix=max", "power", "preble", "roofline,model=Qwen3-8B"):
        made = model(choice)
        assert made.step_time_ns([(2_000, 0, 0)] * 2) > made.step_time_ns([(2_000, 0, 0)]), choice


def test_prefill_and_decode_are_added_or_the_longer_one_counts() -> None:
    chunk = [(1_000, 0, 0)]
    assert ms(model(FIXED).step_time_ns(chunk, 3)) == 120
    assert ms(model(FIXED + ",mix=max").step_time_ns(chunk, 3)) == 100
    assert ms(model(FIXED + ",mix=max").step_time_ns([(10, 0, 0)], 3)) == 20


def test_quadratic_attention_is_the_same_however_a_prompt_is_cut() -> None:
    made = model("quadratic,prefill_us_per_token=0,attention_ns_per_pair=6")
    cut = sum(made.step_time_ns([(1_000, start, 0)]) for start in range(0, 8_000, 1_000))
    assert cut == made.prefill_time_ns(8_000) == 6 * 8_000**2 // 2


def test_times_are_rounded_up_but_not_for_noise() -> None:
    assert model("fixed,prefill_ms_per_token=1e-7,decode_ms=0").prefill_time_ns(11) == 2
    assert [model("fixed,prefill_ms_per_token=0.1,decode_ms=0").prefill_time_ns(n) for n in (1, 3)] == [
        100_000,
        300_000,
    ]


@pytest.mark.parametrize(
    ("choice", "bits"),
    [
        ("linear,profile=70b-h100-tp8", "0x1.9aacefdcdcdcep+31"),
        ("poly", "0x1.eeb0ccdaf7345p+26"),
        ("power", "0x1.2f24282ce5c83p+28"),
        ("preble", "0x1.49b2e28ecc5c0p+29"),
        ("quadratic,prefill_us_per_token=33.1611,attention_ns_per_pair=6.04702", "0x1.bd02ad6f53f7cp+27"),
        ("roofline,model=Qwen3-30B-A3B", "0x1.39b9bee475b52p+26"),
    ],
)
def test_a_step_takes_the_same_time_on_every_machine(choice: str, bits: str) -> None:
    """To the last bit: a fused multiply-add would show here."""
    step = ([(777, 1_234, 1_234), (4_321, 7, 0)], 37, 55_555, 61_894, 123_457)
    assert float(model(choice).step_time_ns(*step, exact=True)).hex() == bits


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("fixed", "prefill_ms_per_token .* must be given"),
        ("fixed,prefill_ms_per_token=-1,decode_ms=0", "prefill_ms_per_token = '-1' is below 0"),
        ("fixed,prefill_ms_per_token=inf,decode_ms=0", "must be a finite number"),
        ("linear", "give prefill_ms_per_token, or a profile: 13b-h100"),
        ("linear,profile=9b", "'9b' is not one of"),
        ("linear,profile=8b-h100,load_factor=0.5", "is below 1"),
        ("poly,decode_ms_at_load_squared=-30", "more load decode faster.* at least -27.005"),
        ("roofline", "give roofline,model=NAME, .* in a replay, --model will do"),
        ("roofline,model=Llama-3.1-405B,tp=8", "take 94.5 GiB of each of 8 h100-sxm, which has 80 GiB"),
        ("roofline,model=Qwen3-8B,gpu=h101", "'h101' is not one of"),
        ("roofline,model=Qwen3-8B,mfu=0", "is below 1e-06"),
        ("table", "give prefill=FILE, decode=FILE or both"),
        ("table,prefill=missing.csv", "missing.csv: cannot be read: No such file"),
    ],
)
def test_impossible_parameters_are_an_error_that_says_what_is_possible(choice: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model(choice)


def test_a_time_beyond_all_clocks_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Fixed takes 1e\+12 s for a step of 10 prompt tokens and 0 decodes"):
        model("fixed,prefill_ms_per_token=1e14,decode_ms=0").prefill_time_ns(10)


@pytest.mark.parametrize("step", [[[(-1, 0, 0)]], [[(1, 2, 3)]], [[], -1], [[], 1, -5], [[], 0, 0, 5, 4]])
def test_a_step_that_cannot_be_is_an_argument_error(step: list[Any]) -> None:
    with pytest.raises(ArgumentError):
        model(FIXED).step_time_ns(*step)


class Sum(PythonComputeModel):
    """A nanosecond for everything that a step has."""

    def step(self, step: ComputeStep) -> int:
        counts = (step.prefills, step.new_tokens, step.decodes, step.decode_context)
        return sum(counts) + step.held_tokens + step.capacity_tokens + sum(sum(chunk) for chunk in step.chunks)


class Half(PythonComputeModel):
    def step(self, step: ComputeStep) -> Any:
        return 0.5


class Keeps(PythonComputeModel):
    kept: ComputeStep

    def step(self, step: ComputeStep) -> int:
        self.kept = step
        return 1


def test_a_model_in_python_sees_the_whole_step() -> None:
    made = Sum(ComputeContext())
    assert made.step_time_ns([(10, 5, 5), (1, 100, 0)], 3, 1_000, 2_000, 4_000) == 2 + 11 + 3 + 7_000 + 20 + 101
    assert made.prefill_time_ns(10, 5) == 1 + 10 + 15 + 20
    assert made.step_time_ns([(0, 5, 5)]) == 0, "a step without work is not shown to it"


def test_a_model_in_python_that_breaks_its_contract_is_named() -> None:
    with pytest.raises(PolicyError, match=re.escape("Half.step returned 0.5; a step takes whole nanoseconds")):
        Half(ComputeContext()).prefill_time_ns(1)
    kept = Keeps(ComputeContext())
    kept.prefill_time_ns(1)
    with pytest.raises(ArgumentError, match="is over"):
        _ = kept.kept.chunks


def test_specs_name_what_the_files_have() -> None:
    assert tuple(sorted(load_profiles())) == _PROFILES
    assert tuple(sorted(load_gpus())) == _GPUS
    for spec in REGISTRY.specs(ComputeModelSpec):
        assert spec.source
        assert {*spec.linear, *spec.curved} <= {param.name for param in spec.params}
