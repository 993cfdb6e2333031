"""The compute model ``roofline`` for a model, a GPU and a number of ranks by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.serving.gpus import find_gpu
from kvbench.serving.kvsize import KvLayout, parse_dtype
from kvbench.serving.models import find_decoder
from kvbench.serving.roofline import Roofline
from kvbench.units import format_bytes

if TYPE_CHECKING:
    from kvbench.serving.compute import ComputeContext
    from kvbench.serving.gpus import Gpu
    from kvbench.serving.weights import Decoder


@dataclass(frozen=True, slots=True)
class _Machine:
    """A model over the GPUs of a worker, and the GPU's figures with what is given over them."""

    decoder: Decoder
    gpu: Gpu
    tp: int
    dtype: str | None
    tflops: float
    hbm_gb_per_s: float


def make_roofline(
    context: ComputeContext,
    *,
    gpu: str,
    bandwidth_efficiency: float,
    step_us: float,
    layer_us: float,
    model: str | None = None,
    tp: int | None = None,
    weight_dtype: str | None = None,
    mfu: float | None = None,
    decode_mfu: float | None = None,
    tflops: float | None = None,
    hbm_gb_per_s: float | None = None,
) -> Roofline:
    """``roofline``; what is not given is the GPU's, and model and ``tp`` are the run's.

    Raises ConfigError for an unknown model or GPU, and for weights that do not fit.
    """
    on = _machine(context, model, gpu, tp, weight_dtype, tflops, hbm_gb_per_s)
    return Roofline(
        context,
        decoder=on.decoder,
        layout=KvLayout(on.decoder.kv.with_dtype(context.kv_dtype), on.tp),
        tflops=on.tflops,
        mfu=on.gpu.mfu if mfu is None else mfu,
        decode_mfu=on.gpu.decode_mfu if decode_mfu is None else decode_mfu,
        bandwidth_gb_per_s=on.hbm_gb_per_s,
        bandwidth_efficiency=bandwidth_efficiency,
        weight_dtype=on.dtype,
        step_us=step_us,
        layer_us=layer_us,
    )


def _machine(
    context: ComputeContext,
    model: str | None,
    gpu: str,
    tp: int | None,
    weight_dtype: str | None,
    tflops: float | None,
    hbm_gb_per_s: float | None,
) -> _Machine:
    chosen = model or context.model
    if chosen is None:
        raise ConfigError(
            "compute model roofline: give roofline,model=NAME, whose operations it counts; in a replay, --model will do"
        )
    decoder = find_decoder(chosen, context.models_file)
    figures = find_gpu(gpu)
    ranks = tp or context.tp or 1
    if ranks < 1:
        raise ConfigError(f"compute model roofline: tp = {ranks} must be at least 1")
    dtype = None if weight_dtype is None else parse_dtype(weight_dtype, "compute model roofline: weight_dtype")
    need = decoder.stored_bytes(dtype) / ranks
    if need > figures.hbm_gib * 2**30:
        raise ConfigError(
            f"compute model roofline: the weights of {decoder.kv.name} take {format_bytes(round(need))} of each of "
            f"{ranks} {gpu}, which has {figures.hbm_gib:g} GiB; give a larger tp, or weight_dtype=fp8"
        )
    return _Machine(
        decoder,
        figures,
        ranks,
        dtype,
        figures.tflops(dtype or decoder.weights.dtype) if tflops is None else tflops,
        figures.hbm_gb_per_s if hbm_gb_per_s is None else hbm_gb_per_s,
    )
