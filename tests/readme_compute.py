"""The parts of the README on compute models."""

from __future__ import annotations

import tempfile
from pathlib import Path

from readme import run, table

from kvbench.plugins import load_registry
from kvbench.serving.gpus import load_gpus
from kvbench.serving.profiles import load_profiles
from kvbench.specs import ComputeModelSpec, Param

MEASURED = {
    "h20.csv": """# Qwen3-Coder-30B on an H20: prompts of 1k and 64k tokens, missed, and found on the GPU
new_tokens,cached_tokens,ms
1024,0,78
65536,0,15200
1,1023,42
1,65535,111
""",
    "h20-cpu.csv": """# the same prompts found in CPU memory, less what those on the GPU take: 57 - 42 and 272 - 111 ms
bytes,ms
100663296,15
6442450944,161
""",
}
"""A published micro-benchmark, of which only the end points are known."""


def compute_models() -> None:
    """Print what each compute model times."""
    rows = []
    for spec in load_registry(autoload=False).specs(ComputeModelSpec):
        caution = f" (**{spec.caution}**)" if spec.caution else ""
        rows.append((f"`{spec.name}`", spec.help + caution, ", ".join(map(_param, spec.params)), spec.source))
    table(("model", "times", "parameters", "source"), rows)


def _param(param: Param) -> str:
    if param.optional:
        return f"`{param.name}`"
    return f"`{param.name}=…`" if param.default is None else f"`{param.name}={param.default}`"


def gpus() -> None:
    """Print the GPUs that roofline knows."""
    rows = []
    for name, gpu in sorted(load_gpus().items()):
        figures = (gpu.bf16_tflops, gpu.fp8_tflops, gpu.hbm_gb_per_s, gpu.hbm_gib, gpu.mfu, gpu.decode_mfu)
        rows.append((f"`{name}`", *("–" if each is None else f"{each:g}" for each in figures), gpu.source))
    units = ("BF16 TFLOP/s", "FP8", "HBM GB/s", "GiB", "`mfu`", "`decode_mfu`")
    table(("GPU", *units, "source"), rows)


def profiles() -> None:
    """Print the profiles of linear."""
    names = ("prompt_ms", "prefill_ms_per_token", "decode_ms", "load_factor")
    rows = ((f"`{name}`", *(f"{each[key]:g}" for key in names)) for name, each in sorted(load_profiles().items()))
    table(("profile", *(f"`{name}`" for name in names)), rows)


def fit_session(*commands: str) -> None:
    """Print a session that writes the measured rows and fits models to them."""
    print("```console")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in MEASURED.items():
            (Path(folder) / name).write_text(text)
            print(f"$ cat > {name} <<END\n{text}END")
        for command in commands:
            print(f"$ {command}\n{run(command, Path(folder))}")
    print("```")
