"""Fits find what made the rows, and say what they cannot find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.errors import ConfigError
from kvbench.fitting.compute import fit_compute
from kvbench.fitting.fitted import Fit
from kvbench.plugins import load_registry
from kvbench.replays.parts import choose
from kvbench.serving.compute import ComputeContext
from kvbench.specs import ComputeModelSpec

REGISTRY = load_registry(autoload=False)

H20 = """# Qwen3-Coder-30B on an H20, prompts of 1k and 64k tokens: missed, and found on the GPU
new_tokens,cached_tokens,ms
1024,0,78
65536,0,15200
1,1023,42
1,65535,111
"""


@pytest.fixture
def fit(tmp_path: Path) -> Any:
    """Fits a model to the text of a CSV file, or to rows."""

    def of(model: str, rows: str | list[dict[str, Any]], **settings: Any) -> Fit:
        path = tmp_path / ("rows.csv" if isinstance(rows, str) else "rows.jsonl")
        path.write_text(rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows)))
        return fit_compute(REGISTRY, path, model, **settings)

    return of


def rows_of(model: str, prefill: bool = True, decode: bool = True) -> list[dict[str, Any]]:
    """What ``model`` says of steps with prompts, with decodes, and with both."""
    made = choose(REGISTRY, ComputeModelSpec, model, "--compute").make(ComputeContext())
    steps: list[dict[str, int]] = []
    if prefill:
        steps += [{"new_tokens": n, "cached_tokens": c} for n in (64, 700, 5_000, 40_000) for c in (0, 900, 30_000)]
    if decode:
        steps += [{"decodes": n, "decode_context": n * c} for n in (1, 10, 200) for c in (100, 900, 1_900)]
        steps += [{"new_tokens": 3_000, "decodes": 50, "decode_context": 70_000}]
    for step in steps:
        chunks = [(step["new_tokens"], *[step.get("cached_tokens", 0)] * 2)] if "new_tokens" in step else []
        decodes = (step.get("decodes", 0), step.get("decode_context", 0), 0, 400_000)
        step |= {"capacity_tokens": 400_000, "ns": made.step_time_ns(chunks, *decodes)}
    return steps


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("fixed", "prefill_ms_per_token=0.07,decode_ms=18,prompt_ms=9"),
        ("linear", "prefill_ms_per_token=0.03,decode_ms=8,prompt_ms=40"),
        ("poly", "prefill_ms=3,prefill_ms_per_token=0.02,prefill_ms_per_token_squared=1e-7,decode_ms=6"),
        ("power", "prefill_ms_per_token_1_5=0.002,prompt_ms=6,cached_ms_per_token=0.001,cached_ms=3,decode_ms=5"),
        ("preble", "slowness=1.7"),
        (
            "quadratic",
            "prefill_us_per_token=33,decode_ms=7,prefill_ms=40,context_us_per_token=1.1,attention_ns_per_pair=6,"
            "decode_us_per_request=20,decode_ns_per_context_token=4",
        ),
        ("roofline,model=Qwen3-8B", "mfu=0.61,decode_mfu=0.02,bandwidth_efficiency=0.55,step_us=900"),
    ],
)
def test_a_fit_finds_the_parameters_that_made_the_rows(fit: Any, name: str, given: str) -> None:
    found = fit(name, rows_of(f"{name},{given}"))
    values = {parameter.name: parameter.value for parameter in found.parameters}
    for pair in given.split(","):
        key, value = pair.split("=")
        assert values[key] == pytest.approx(float(value), rel=2e-3), key
    assert found.max_error < 1e-3


def test_what_is_printed_is_what_is_judged(fit: Any) -> None:
    """The option that a fit prints makes a model with its residuals; so does its table."""
    found = fit("power,decode_ms=0", H20)
    made = choose(REGISTRY, ComputeModelSpec, found.use.removeprefix("--compute "), "--compute").make(ComputeContext())
    said = [made.prefill_time_ns(1_024), made.prefill_time_ns(65_536), made.prefill_time_ns(1, 1_023)]
    assert [row.fitted_ns for row in found.rows[:3]] == pytest.approx(said, abs=1)
    assert found.toml.startswith('[compute]\nname = "power"\nprefill_ms_per_token_1_5 = ')


def test_the_h20_micro_benchmark_has_the_form_of_quadratic(fit: Any) -> None:
    """6.E: as many rows as parameters fit whatever they are, but here all come out above 0."""
    found = fit("quadratic", H20)
    values = {parameter.name: parameter.value for parameter in found.parameters if parameter.origin == "fit"}
    assert sorted(values) == ["attention_ns_per_pair", "context_us_per_token", "prefill_ms", "prefill_us_per_token"]
    assert min(values.values()) > 0
    assert found.max_error < 1e-5
    assert "4 rows for as many parameters: a good fit proves nothing" in found.notes
    assert any("no row depends on decode_ms (which stays 0), decode_us_per_request" in note for note in found.notes)


def test_short_and_long_steps_count_alike(fit: Any) -> None:
    """A line through three points that are on none: the errors are even, not those of the small ones huge."""
    found = fit("fixed,prompt_ms=0", "new_tokens,ms\n10,1\n1000,200\n100000,30000\n")
    errors = [row.error for row in found.rows]
    assert sum(errors) < 0 < max(errors)
    assert found.max_error < 0.7
    assert found.mape == pytest.approx(sum(map(abs, errors)) / 3)


def test_long_prompts_are_computed_in_steps(fit: Any) -> None:
    """A constant of 5 ms a step, 0.1 ms a token; 20,000 tokens are three steps of at most 8,192."""
    rows = [{"new_tokens": n, "ms": 5 * -(-n // 8_192) + n / 10} for n in (100, 8_192, 20_000, 50_000)]
    found = fit("quadratic", rows, batch_tokens=8_192)
    values = {parameter.name: parameter.value for parameter in found.parameters}
    assert (values["prefill_ms"], values["prefill_us_per_token"]) == pytest.approx((5, 100), rel=1e-4)


def test_columns_are_found_under_the_names_that_the_file_gives(fit: Any, tmp_path: Path) -> None:
    found = fit("fixed,prompt_ms=0", "len,ttft\n10,1\n20,2\n", columns={"new_tokens": "len", "ms": "ttft"})
    assert found.parameters[0].value == pytest.approx(0.1)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"new_tokens": [10, 20], "prompts": [2, 1], "seconds": [0.002, 0.002]}), path)
    assert fit_compute(REGISTRY, path, "fixed,prompt_ms=0").parameters[0].value == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("model", "rows", "message"),
    [
        (
            "fixed",
            "new_tokens,ms\n10,1\n",
            "1 rows do not tell 2 parameters .prompt_ms, prefill_ms_per_token.; measure",
        ),
        (
            "fixed",
            "new_tokens,ms\n10,1\n10,2\n",
            "do not tell prefill_ms_per_token from prompt_ms; measure other sizes",
        ),
        ("fixed", "new_tokens,ms\n10,1\nten,2\n", "rows.csv, row 2, new_tokens = 'ten': must be a number"),
        ("fixed", "new_tokens,ms\n0,1\n", "row 1, new_tokens = 0: a row computes prompt tokens, or has decodes"),
        ("fixed", "new_tokens,context_tokens,cached_tokens,ms\n1,5,6,1\n", "cached_tokens = 6: is more than"),
        ("fixed", "tokens,ms\n10,1\n", "has neither new_tokens nor decodes; the columns are tokens, ms"),
        ("fixed,prefill_ms_per_token=1,decode_ms=1,prompt_ms=1", H20, "all its parameters are given"),
        ("table", H20, "table: none of its parameters can be fitted"),
        ("fixed,mix=max", "new_tokens,decodes,ms\n10,5,1\n", "fitted with mix=sum alone"),
        ("fixd", H20, "did you mean 'fixed'"),
        ("fixed,promt_ms=1", H20, "unknown parameter 'promt_ms'"),
    ],
)
def test_what_cannot_be_fitted_says_why(fit: Any, model: str, rows: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(model, rows)


def test_bad_lines_of_json_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for text, message in (('{"new_tokens": 1, "ms": 2}\n\n[1]', "row 3 = "), ("{", "row 1: not valid JSON")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            fit_compute(REGISTRY, path, "fixed")
