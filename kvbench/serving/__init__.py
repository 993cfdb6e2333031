"""What serving a model costs: the bytes of its KV cache.

kvsize.py    shapes and layouts: bytes of a token, a request, a block, and back (integers throughout)
capacity.py  what a capacity holds: per rank, host and cluster
models.py    presets by name (models.toml, and the user's own files), and :func:`kv_layout`
hfconfig.py  a shape from the ``config.json`` of a Hugging Face model

Importing this package loads none of them; its names do, when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbench.serving.capacity import Holding, capacity_of
    from kvbench.serving.hfconfig import read_config
    from kvbench.serving.kvsize import KvLayout, KvShape, StateShape
    from kvbench.serving.models import find_shape, kv_layout, load_models

__all__ = [
    "Holding",
    "KvLayout",
    "KvShape",
    "StateShape",
    "capacity_of",
    "find_shape",
    "kv_layout",
    "load_models",
    "read_config",
]

_HOMES = {
    "Holding": "capacity",
    "KvLayout": "kvsize",
    "KvShape": "kvsize",
    "StateShape": "kvsize",
    "capacity_of": "capacity",
    "find_shape": "models",
    "kv_layout": "models",
    "load_models": "models",
    "read_config": "hfconfig",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
