"""GPUs by name: the presets of ``gpus.toml``."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of one GPU: 10¹² operations a second, 10⁹ bytes a second in one direction, GiB.

    ``fp8_tflops``  None: it has no arithmetic in FP8.
    ``mfu``, ``decode_mfu``  share of the peak that prefill and decode are seen to reach.
    """

    help: str
    bf16_tflops: float
    fp8_tflops: float | None = None
    hbm_gb_per_s: float
    hbm_gib: float
    nvlink_gb_per_s: float
    network_gb_per_s: float
    pcie_gb_per_s: float
    mfu: float
    decode_mfu: float
    source: str

    def tflops(self, weight_dtype: str) -> float:
        """The peak for weights of a dtype: FP8 arithmetic for FP8 weights where it has it, else BF16."""
        return self.fp8_tflops if weight_dtype == "fp8" and self.fp8_tflops is not None else self.bf16_tflops


def load_gpus() -> Mapping[str, Gpu]:
    """All GPUs by name."""
    return msgspec.convert(tomllib.loads((files("kvbench.serving") / "gpus.toml").read_text("utf-8")), dict[str, Gpu])


def find_gpu(name: str) -> Gpu:
    """The GPU of this name. Raises ConfigError with the nearest name and all of them."""
    gpus = load_gpus()
    if name not in gpus:
        raise ConfigError(f"unknown GPU {name!r}; {did_you_mean(name, sorted(gpus))}")
    return gpus[name]
