from typing import Any

import numpy.typing as npt

SMALLEST_ROW: int

def scan_rows(
    text: bytes,
    out_lines: npt.NDArray[Any],
    out_arrivals: npt.NDArray[Any],
    out_tokens: npt.NDArray[Any],
    out_outputs: npt.NDArray[Any],
    out_lengths: npt.NDArray[Any],
    out_values: npt.NDArray[Any],
) -> tuple[int, int]: ...
def scan_turns(text: bytes, out: npt.NDArray[Any], out_values: npt.NDArray[Any]) -> tuple[int, int]: ...
