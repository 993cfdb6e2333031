"""Devices from rows, from fio and from nixlbench."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import ConfigError
from kvbench.fitting.device import fit_device
from kvbench.fitting.fitted import Fit
from kvbench.plugins import load_registry
from kvbench.serving.devices import load_devices, make_device
from kvbench.tierconfig import parse_tier

REGISTRY = load_registry(autoload=False)


def fit(path: Path, device: str = "nvme-gen4", **settings: Any) -> Fit:
    return fit_device(REGISTRY, path, device, **settings)


def values(found: Fit) -> dict[str, float]:
    return {parameter.name: parameter.value for parameter in found.parameters}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_rows_that_a_device_made_give_the_device_back(tmp_path: Path) -> None:
    device = make_device("nvme-gen4")
    lines = ["bytes,operation,ns"]
    for size in (4_096, 1_048_576, 268_435_456):
        lines += [f"{size},read,{device.read_ns(size)}", f"{size},write,{device.write_ns(size)}"]
    found = fit(write(tmp_path / "rows.csv", "\n".join(lines)))
    assert values(found) == pytest.approx(
        {"read_gb_per_s": 7, "read_latency_us": 80, "write_gb_per_s": 5, "write_latency_us": 80}, rel=1e-4
    )


def test_what_is_printed_is_a_tier_and_a_file_of_devices(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.csv", "bytes,ms\n100663296,15\n6442450944,161\n")
    found = fit(rows, "cpu-pcie5", tier="cpu")
    assert "2 rows for as many parameters" in found.notes[0]
    option = found.use.removeprefix("--tier ").replace(",…", "")
    assert parse_tier(option)["device"] == {
        "name": "cpu-pcie5",
        "read_gb_per_s": "43.4369",
        "read_latency_us": "12682.5",
    }
    device = load_devices(write(tmp_path / "devices.toml", found.toml))["cpu-pcie5-measured"]
    assert [device.read_ns(size) for size in (100_663_296, 6_442_450_944)] == pytest.approx([15e6, 161e6], rel=1e-4)
    assert device.write_bandwidth_bytes_per_s == 50 * 10**9
    assert "kvbench fit device" in tomllib.loads(found.toml)["cpu-pcie5-measured"]["sources"]["read_gb_per_s"]


def test_operations_that_run_together_share_the_link(tmp_path: Path) -> None:
    text = "bytes,in_flight,us\n1000000,1,600\n1000000,4,2100\n8000000,1,4100\n"
    found = fit(write(tmp_path / "rows.csv", text))
    assert values(found) == pytest.approx({"read_gb_per_s": 2, "read_latency_us": 100})


def job(name: str, group: int, **directions: tuple[int, int, float]) -> dict[str, Any]:
    """A job of fio: block size, operations a second and mean time in ns of each direction."""
    idle = {"io_bytes": 0, "total_ios": 0, "iops": 0.0, "lat_ns": {"mean": 0.0}}
    entry: dict[str, Any] = {"jobname": name, "groupid": group, "read": idle, "write": idle}
    for kind, (block, iops, mean) in directions.items():
        entry[kind] = {"io_bytes": block * 500, "total_ios": 500, "iops": iops, "lat_ns": {"mean": mean}}
    return entry


def test_fio_says_how_many_were_in_flight_by_its_rates(tmp_path: Path) -> None:
    """One at a time: 100 µs + 1 MB / 2 GB/s; two jobs together, each with two in flight: four share the link."""
    jobs = [
        job("small", 0, read=(4_000, 9_800, 102_000)),
        job("large", 1, read=(1_000_000, 1_666, 600_000)),
        job("a", 2, read=(1_000_000, 952, 2_100_000)),
        job("b", 2, read=(1_000_000, 953, 2_100_000)),
        job("w", 3, write=(1_000_000, 1_000, 1_000_000)),
        job("w", 4, write=(2_000_000, 500, 2_000_000)),
    ]
    text = "fio: a warning first\n" + json.dumps({"fio version": "fio-3.36", "jobs": jobs})
    found = fit(write(tmp_path / "fio.json", text))
    expected = {"read_gb_per_s": 2, "read_latency_us": 100, "write_gb_per_s": 1, "write_latency_us": 0}
    assert values(found) == pytest.approx(expected, rel=2e-3, abs=1e-6)
    assert found.rows[2].what == "read 977 KiB, 4 in flight"


NIXL = """
Op type (--op_type=[READ,WRITE])                            : READ
Num threads (--num_threads=N)                               : 1
-----------------------------------------------------------------
Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  Avg Prep (us)
-----------------------------------------------------------------
1000000             1              2.5            400.0          11.0
1000000             4              4.0            250.0          11.0
Op type (--op_type=[READ,WRITE])                            : WRITE
Num threads (--num_threads=N)                               : 2
Block Size (B)      Batch Size     Avg Lat. (us)  B/W (MiB/Sec)  B/W (GiB/Sec)
1048576             1              700.0          2000           1.953125
4194304             1              4000.0         4000           3.90625
"""


def test_nixlbench_tables_are_read_with_the_settings_above_them(tmp_path: Path) -> None:
    """400 µs for 1 MB and 1,000 µs for four: 200 µs + 5 GB/s. Two threads: 2 MiB in 1 ms, 8 MiB in 2 ms."""
    found = fit(write(tmp_path / "nixl.txt", NIXL), "rdma-400g")
    assert values(found) == pytest.approx(
        {"read_gb_per_s": 5, "read_latency_us": 200, "write_gb_per_s": 6.29146, "write_latency_us": 666.667}, rel=1e-4
    )
    comma = "Block Size (B),Batch Size,B/W (GB/Sec)\n1000000,1,2.5\n1000000,4,4.0\n"
    assert values(fit(write(tmp_path / "nixl.csv", comma), "rdma-400g,write_latency_us=0"))["write_gb_per_s"] > 0


@pytest.mark.parametrize(
    ("name", "text", "device", "message"),
    [
        ("a.csv", "bytes,ms\n5,1\n", "s3", "reads: 1 row does not tell read_latency_us from read_gb_per_s"),
        ("a.csv", "bytes,ms\n5,1\n5,2\n", "s3", "all rows move as many bytes"),
        ("a.csv", "bytes,ms\n5,2\n500,1\n", "s3", "their times do not grow with their size"),
        ("a.csv", "bytes,operation,ms\n5,sync,1\n", "s3", "row 1, operation = 'sync': must be read or write"),
        ("a.csv", "size,ms\n5,1\n", "s3", "has no column bytes; the columns are size, ms"),
        ("a.csv", "bytes,ms\n5,1\n6,1.2\n", "s4", "unknown device 's4'"),
        (
            "a.json",
            '{"fio version": "fio-3", "jobs": [{"read": {"total_ios": 1}}]}',
            "s3",
            "not what fio --output-format",
        ),
        ("a.json", '{"fio version": "fio-3", "jobs": []}', "s3", "no job of fio read or wrote anything"),
        ("a.txt", "Block Size (B)   Batch Size   B/W (GB/Sec)\n", "s3", "nixlbench's table has no rows"),
        (
            "a.txt",
            "Block Size (B)   Batch Size   B/W (GB/Sec)\n4096  1  0\n",
            "s3",
            "line 2 = .*not a row of nixlbench",
        ),
    ],
)
def test_what_cannot_be_fitted_says_why(tmp_path: Path, name: str, text: str, device: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(write(tmp_path / name, text), device)
