"""The built-in parts of tiers: admission filters and devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import AdmissionSpec, DeviceSpec, Param

if TYPE_CHECKING:
    from collections.abc import Iterator


@hookimpl
def kvbench_admission_filters() -> Iterator[AdmissionSpec]:
    yield AdmissionSpec("all", "kvbench.cache.admission:AdmissionFilter", "every block", source="folklore")
    yield AdmissionSpec(
        "min-count",
        "kvbench.cache.admission:MinCount",
        "a block at its n-th offer",
        params=(
            Param("n", int, 2, "offers until it enters", minimum=1, maximum=1e6),
            Param("tracked", int, 64_000, "keys whose offers are remembered", minimum=1, maximum=1e8),
        ),
        source="vLLM 0.33 store_threshold (E-43)",
    )
    yield AdmissionSpec(
        "presence",
        "kvbench.cache.admission:Presence",
        "what the tier has not; it is not offered what it has, so no duplicate is counted",
        source="KVBM offload filter (E-60)",
    )
    yield AdmissionSpec(
        "tinylfu",
        "kvbench.cache.admission:TinyLfu",
        "a block that a frequency sketch has counted often enough",
        params=(
            Param("min_count", int, 8, "offers it must have had", minimum=1, maximum=15),
            Param("counters", int, 2**21, "counters of the sketch", minimum=4, maximum=2**30),
        ),
        source="Einziger, Friedman, Manes, ACM ToS 2017; KVBM presence_lfu (E-60)",
    )


_DEVICE_FIGURES: tuple[Param, ...] = (
    Param("read_gb_per_s", float, None, "bandwidth of reads, 10⁹ bytes/s", minimum=1e-9, optional=True),
    Param("write_gb_per_s", float, None, "bandwidth of writes, 10⁹ bytes/s", minimum=1e-9, optional=True),
    Param("read_latency_us", float, None, "latency of a read, µs", minimum=0, optional=True),
    Param("write_latency_us", float, None, "latency of a write, µs", minimum=0, optional=True),
    Param("lookup_us", float, None, "round trip of a presence test, µs; 0: free", minimum=0, optional=True),
    Param("concurrent_operations", str, None, "operations in flight at most, or unlimited", optional=True),
    Param("rated_drive_writes_per_day", float, None, "endurance: full drive writes a day", minimum=1e-9, optional=True),
    Param("drive_capacity_gb", float, None, "capacity that it is of, 10⁹ bytes", minimum=1e-9, optional=True),
)

_DEVICES = {
    "cpu-pcie4": "host memory over PCIe 4.0 x16, pinned",
    "cpu-pcie5": "host memory over PCIe 5.0 x16, pinned",
    "dfs-lustre": "a Lustre-class parallel file system, one client's share",
    "gpu-hbm-a100": "HBM2e of an A100 SXM 80 GB",
    "gpu-hbm-b200": "HBM3e of a B200 SXM 180 GB",
    "gpu-hbm-h100": "HBM3 of an H100 SXM 80 GB",
    "gpu-hbm-h200": "HBM3e of an H200 SXM 141 GB",
    "nvme-gen3": "one data-centre NVMe drive, PCIe 3.0 x4",
    "nvme-gen4": "one data-centre NVMe drive, PCIe 4.0 x4",
    "nvme-gen5": "one data-centre NVMe drive, PCIe 5.0 x4",
    "opal-cpu": "OPAL's CPUMemory",
    "opal-dfs": "OPAL's DistributedFS: one device for all workers",
    "opal-nvme": "OPAL's LocalNVMe",
    "rdma-100g": "a peer's memory over 100 Gbit/s RDMA",
    "rdma-200g": "a peer's memory over 200 Gbit/s RDMA",
    "rdma-400g": "a peer's memory over 400 Gbit/s RDMA (InfiniBand NDR)",
    "s3": "an S3-compatible object store in the same region, many connections",
}
"""Names and help of ``serving/devices.toml``, which is read when a device is made: a test keeps them equal."""


@hookimpl
def kvbench_devices() -> Iterator[DeviceSpec]:
    for name, help_line in _DEVICES.items():
        yield DeviceSpec(
            name,
            "kvbench.serving.devices:make_device",
            help_line,
            params=_DEVICE_FIGURES,
            source="kvbench/serving/devices.toml",
        )
