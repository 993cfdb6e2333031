import numpy as np
import numpy.typing as npt

def mix_ids(
    ids: npt.NDArray[np.uint64],
    offsets: npt.NDArray[np.int64],
    roots: npt.NDArray[np.uint64],
    keys: npt.NDArray[np.uint64],
) -> None: ...
def chain_ids(
    ids: npt.NDArray[np.uint64],
    offsets: npt.NDArray[np.int64],
    roots: npt.NDArray[np.uint64],
    keys: npt.NDArray[np.uint64],
) -> None: ...
