"""The built-in compute models; :mod:`kvbench.builtin` offers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import ComputeModelSpec, Param

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIX = Param("mix", str, "sum", "the prefill and decode parts of a step: added, or the longer", choices=("sum", "max"))

_PROFILES = (
    *("13b-h100", "34b-h100-tp2", "3b-h100", "3b-l40s", "405b-h100-tp8-fp8"),
    *("70b-h100-tp4", "70b-h100-tp8", "8b-h100"),
)
_GPUS = ("a100-sxm", "b200-sxm", "gb200", "h100-sxm", "h200-sxm", "l40s")
"""Names of ``serving/profiles.toml`` and ``serving/gpus.toml``: a test keeps them equal."""


def _at_least_0(name: str, default: float | None, help_line: str, *, optional: bool = False) -> Param:
    return Param(name, float, default, help_line, minimum=0, optional=optional)


@hookimpl
def kvbench_compute_models() -> Iterator[ComputeModelSpec]:
    yield from _plain()
    yield from _published()
    yield _roofline()
    yield ComputeModelSpec(
        "table",
        "kvbench.serving.tables:make_table",
        "measured times, interpolated linearly",
        params=(
            Param(
                "prefill",
                str,
                None,
                "file of new_tokens, maybe context_tokens, and seconds, ms, us or ns",
                optional=True,
            ),
            Param(
                "decode",
                str,
                None,
                "file of decodes or decode_context, maybe context_tokens, and a time",
                optional=True,
            ),
            Param("extrapolate", bool, False, "go on beyond what was measured, which is an error else"),
            _MIX,
        ),
        source="as Dynamo's interpolated model",
    )


def _plain() -> Iterator[ComputeModelSpec]:
    yield ComputeModelSpec(
        "fixed",
        "kvbench.serving.formulas:Fixed",
        "the same time for each prompt token, and for each step with decodes",
        params=(
            _at_least_0("prefill_ms_per_token", None, "of each computed prompt token, ms"),
            _at_least_0("decode_ms", None, "of a step with decodes, ms"),
            _at_least_0("prompt_ms", 0.0, "of each prompt beside its tokens, ms"),
            _MIX,
        ),
        source="folklore",
        linear=("prompt_ms", "prefill_ms_per_token", "decode_ms"),
    )
    yield ComputeModelSpec(
        "quadratic",
        "kvbench.serving.formulas:Quadratic",
        "linear layers, attention over new · (context + new / 2) pairs, and context; a form to fit",
        params=(
            _at_least_0("prefill_us_per_token", None, "of each computed prompt token, µs"),
            _at_least_0("decode_ms", 0.0, "of a step with decodes, ms"),
            _at_least_0("prefill_ms", 0.0, "of a step with prefill, ms"),
            _at_least_0("context_us_per_token", 0.0, "of each token of context before a chunk, µs"),
            _at_least_0("attention_ns_per_pair", 0.0, "of each pair of a new token and one it looks at, ns"),
            _at_least_0("decode_us_per_request", 0.0, "of each decoding request, µs"),
            _at_least_0("decode_ns_per_context_token", 0.0, "of each token of a decoding request's context, ns"),
            _MIX,
        ),
        source="kvbench",
        linear=(
            *("prefill_ms", "prefill_us_per_token", "context_us_per_token", "attention_ns_per_pair"),
            *("decode_ms", "decode_us_per_request", "decode_ns_per_context_token"),
        ),
    )


def _published() -> Iterator[ComputeModelSpec]:
    yield ComputeModelSpec(
        "linear",
        "kvbench.serving.profiles:make_linear",
        "as fixed, and slower the more requests run",
        params=(
            Param("profile", str, None, "a class of models on a GPU, for what is not given", _PROFILES, optional=True),
            _at_least_0("prompt_ms", None, "of each prompt beside its tokens, ms", optional=True),
            _at_least_0("prefill_ms_per_token", None, "of each computed prompt token, ms", optional=True),
            _at_least_0("decode_ms", None, "of a step with decodes, ms", optional=True),
            Param("load_factor", float, None, "how much slower at load_requests", minimum=1, optional=True),
            Param("load_requests", int, 256, "running requests of full load", minimum=2, maximum=2**24),
            _MIX,
        ),
        source="llm-d-inference-sim, calculator per-token and time-factor-under-load",
        linear=("prompt_ms", "prefill_ms_per_token", "decode_ms"),
        caution="its profiles fit prompts of 256 tokens; at 8k tokens and more they are several times too slow",
    )
    yield ComputeModelSpec(
        "poly",
        "kvbench.serving.formulas:Poly",
        "quadratic in the new tokens of a step, and in the share of the GPU that decoding contexts fill",
        params=(
            _at_least_0("prefill_ms", 16.50142, "of a step with prefill, ms"),
            _at_least_0("prefill_ms_per_token", 1.518344e-2, "of each computed prompt token, ms"),
            _at_least_0("prefill_ms_per_token_squared", 4.209989e-7, "of the square of these tokens, ms"),
            _at_least_0("decode_ms", 5.74, "of a step with decodes on an empty GPU, ms"),
            _at_least_0("decode_ms_at_load", 54.01, "times the share that is full, ms"),
            Param("decode_ms_at_load_squared", float, -25.74, "times its square, ms"),
            Param("speedup_ratio", float, 1.0, "divides all times", minimum=1e-9),
            Param("decode_speedup_ratio", float, 1.0, "divides those of decode, too", minimum=1e-9),
            _MIX,
        ),
        source="ai-dynamo/aisimulate perf_model.rs (Dynamo's mocker), by whose authors uncalibrated",
        linear=(
            *("prefill_ms", "prefill_ms_per_token", "prefill_ms_per_token_squared"),
            *("decode_ms", "decode_ms_at_load", "decode_ms_at_load_squared"),
        ),
        caution="not calibrated to any engine",
    )
    yield ComputeModelSpec(
        "power",
        "kvbench.serving.formulas:Power",
        "the new tokens of a chunk to the power of 1.5, and the reading of what was cached",
        params=(
            _at_least_0("prefill_ms_per_token_1_5", 0.001, "of a chunk's tokens to the power of 1.5, ms"),
            _at_least_0("prompt_ms", 5.0, "of each prompt beside its tokens, ms"),
            _at_least_0("cached_ms_per_token", 0.005, "of each cached token, ms"),
            _at_least_0("cached_ms", 1.0, "of each prompt with cached tokens, ms"),
            _at_least_0("decode_ms", 0.0, "of a step with decodes, of which the original says nothing, ms"),
            _MIX,
        ),
        source="AIBrix conductor",
        linear=("prompt_ms", "prefill_ms_per_token_1_5", "cached_ms", "cached_ms_per_token", "decode_ms"),
    )
    yield ComputeModelSpec(
        "preble",
        "kvbench.serving.formulas:Preble",
        "Mistral 7B on an A6000, fitted piece by piece, for the whole batch",
        params=(Param("slowness", float, 1.0, "of the GPU against an A6000 (V100: 2.5)", minimum=1e-9),),
        source="Srivatsa et al., Preble, ICLR 2025; AIBrix prefix_cache_preble.go",
        linear=("slowness",),
    )


def _roofline() -> ComputeModelSpec:
    return ComputeModelSpec(
        "roofline",
        "kvbench.serving.rooflines:make_roofline",
        "operations over the GPU's peak or bytes over its bandwidth, whichever takes longer",
        params=(
            Param("model", str, None, "whose operations and bytes; the run's --model if not given", optional=True),
            Param("gpu", str, "h100-sxm", "of which each rank is one", _GPUS),
            Param("tp", int, None, "tensor-parallel ranks; the run's --tp if not given", minimum=1, optional=True),
            Param("weight_dtype", str, None, "of the weights, instead of the model's", optional=True),
            Param(
                "mfu", float, None, "share of the peak in prefill, instead of the GPU's", minimum=1e-6, optional=True
            ),
            Param(
                "decode_mfu",
                float,
                None,
                "share of the peak in decode, instead of the GPU's",
                minimum=1e-6,
                optional=True,
            ),
            Param("bandwidth_efficiency", float, 0.8, "share of the memory's bandwidth", minimum=1e-6),
            Param("tflops", float, None, "peak of a GPU, instead of the preset's", minimum=1e-6, optional=True),
            Param("hbm_gb_per_s", float, None, "bandwidth of its memory, likewise", minimum=1e-6, optional=True),
            _at_least_0("step_us", 0.0, "of each step, µs"),
            _at_least_0("layer_us", 0.0, "of each layer in a step, µs"),
        ),
        source="Williams et al., CACM 52(4), 2009; GPUs and MFU: kvbench/serving/gpus.toml",
        linear=("step_us",),
        curved=("mfu", "decode_mfu", "bandwidth_efficiency"),
    )
