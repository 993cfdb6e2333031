"""What serving a model costs: the bytes of its KV cache, and the time of its steps.

kvsize.py    shapes and layouts: bytes of a token, a request, a block, and back (integers throughout)
capacity.py  what a capacity holds: per rank, host and cluster
models.py    presets by name (models.toml, and the user's own files), and :func:`kv_layout`
hfconfig.py  a shape from the ``config.json`` of a Hugging Face model
device.py    what reads and writes of a device take, and how it wears
devices.py   devices by name (devices.toml, and the user's own files)
breakeven.py from how many tokens on loading beats recomputing
weights.py   how many parameters a model has and uses (hfweights.py: from a config.json)
gpus.py      GPUs by name (gpus.toml)
measured.py  rows of measured times from files

compute.pyx  [compiled] what a compute model is: it says how long a step takes
formulas.pyx [compiled] those that are formulas (profiles.py: parameters of ``linear`` by name)
roofline.pyx [compiled] the one that counts operations and bytes (rooflines.py makes it)
timetable.pyx [compiled] the one that looks measured times up (tables.py makes it)

Of timed replay (compiled):

clock.pyx    simulated time, and the alarms set
link.pyx     one direction of a device or network link
flows.pyx    how fast transfers flow that share links,
turns.pyx    whose turn it is where these are full,
links.pyx    and transfers from start to end
traffic.pyx  what is on its way between tiers
holdings.pyx what requests hold of the tiers of their worker,
shipments.pyx what is on its way between these,
mover.pyx    and how requests take blocks and let them go
batching.pyx who takes part in the steps of a worker
worker.pyx   and how its requests come and go (request.pxd)

Importing this package loads none of them; its names do, when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbench.serving.breakeven import break_even_tokens, loads
    from kvbench.serving.capacity import Holding, capacity_of
    from kvbench.serving.compute import ComputeContext, ComputeModel, ComputeStep, PythonComputeModel
    from kvbench.serving.device import Device
    from kvbench.serving.devices import find_device, load_devices, make_device
    from kvbench.serving.hfconfig import read_config
    from kvbench.serving.kvsize import KvLayout, KvShape, StateShape
    from kvbench.serving.models import find_shape, kv_layout, load_models

__all__ = [
    "ComputeContext",
    "ComputeModel",
    "ComputeStep",
    "Device",
    "Holding",
    "KvLayout",
    "KvShape",
    "PythonComputeModel",
    "StateShape",
    "break_even_tokens",
    "capacity_of",
    "find_device",
    "find_shape",
    "kv_layout",
    "load_devices",
    "load_models",
    "loads",
    "make_device",
    "read_config",
]

_HOMES = {
    "ComputeContext": "compute",
    "ComputeModel": "compute",
    "ComputeStep": "compute",
    "Device": "device",
    "Holding": "capacity",
    "KvLayout": "kvsize",
    "KvShape": "kvsize",
    "PythonComputeModel": "compute",
    "StateShape": "kvsize",
    "break_even_tokens": "breakeven",
    "capacity_of": "capacity",
    "find_device": "devices",
    "find_shape": "models",
    "kv_layout": "models",
    "load_devices": "devices",
    "load_models": "models",
    "loads": "breakeven",
    "make_device": "devices",
    "read_config": "hfconfig",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
