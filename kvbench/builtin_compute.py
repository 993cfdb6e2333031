"""The built-in compute models; :mod:`kvbench.builtin` offers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import ComputeModelSpec, Param

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIX = Param("mix", str, "sum", "prefill and decode of one step", choices=("sum", "max"))


@hookimpl
def kvbench_compute_models() -> Iterator[ComputeModelSpec]:
    yield ComputeModelSpec(
        "fixed",
        "kvbench.serving.formulas:Fixed",
        "the same time for each prompt token, and for each step with decodes",
        params=(
            Param("prefill_ms_per_token", float, None, "of each computed prompt token, ms", minimum=0),
            Param("decode_ms", float, None, "of a step with decodes, ms", minimum=0),
            Param("prompt_ms", float, 0.0, "of each prompt beside its tokens, ms", minimum=0),
            _MIX,
        ),
        source="folklore",
    )
