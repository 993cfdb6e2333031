from typing import Any

import numpy.typing as npt

def parse_id_lists(text: bytes, out_values: npt.NDArray[Any], out_lengths: npt.NDArray[Any]) -> int: ...
