"""Devices: what their figures cost, where the figures come from, and what is said of wrong ones.

BUG-13, OP-22 and OP-35 are rows of the predecessors' defects and behaviours, E12 is a user's report.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ConfigError
from kvbench.serving.device import (
    DAY_NS,
    Device,
    bytes_per_day,
    drive_writes_per_day,
    hits_lost_per_byte_avoided,
)
from kvbench.serving.devices import FIGURES, Figure, find_device, load_devices, make_device
from kvbench.units import NS_PER_S

UNITS = ("_bytes_per_s", "_gb_per_s", "_per_day", "_bytes", "_gb", "_ns", "_us", "_operations")
KIB, MIB = 2**10, 2**20


def a_device(**changes: object) -> Device:
    return replace(
        Device(
            name="d",
            medium="cpu",
            basis="nominal",
            read_bandwidth_bytes_per_s=50 * 10**9,
            write_bandwidth_bytes_per_s=25 * 10**9,
            read_latency_ns=200,
            write_latency_ns=300,
            lookup_ns=1000,
        ),
        **changes,
    )


def a_file(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


A_TABLE = """
[mine]
medium = "nvme"
basis = "effective"
read_gb_per_s = 6.5
write_gb_per_s = 2
read_latency_us = 0.1
write_latency_us = 20
"""


# --- time


def test_bug_13a_small_operations_use_bandwidth_however_many_there_are() -> None:
    """1000 parallel reads of 8 MiB at 100 GB/s took 100 µs in OPAL: 84 TB/s."""
    dfs = make_device("opal-dfs")
    took = dfs.read_ns(1000 * 8 * MIB, operations=1000)
    assert took == 100_000 + 83_886_080
    assert took * dfs.read_bandwidth_bytes_per_s >= 1000 * 8 * MIB * NS_PER_S


def test_bug_13a_a_tiny_operation_takes_its_latency_and_its_transfer() -> None:
    assert a_device().read_ns(1) == 201


def test_bug_13c_there_is_no_quantum_of_time() -> None:
    """64 KiB at 50 GB/s took 10.2 µs in OPAL; ideal are 1.51 µs."""
    ideal = 200 + Fraction(64 * KIB, 50)
    assert 0 <= make_device("opal-cpu").read_ns(64 * KIB) - ideal < 1


@given(
    size=st.integers(0, 2**50),
    bandwidth=st.integers(1, 10**13),
    latency=st.integers(0, 10**10),
    operations=st.integers(1, 10**6),
    limit=st.none() | st.integers(1, 1000),
)
def test_no_transfer_is_faster_than_its_latency_and_its_bandwidth_or_slower_by_a_nanosecond(
    size: int, bandwidth: int, latency: int, operations: int, limit: int | None
) -> None:
    device = a_device(read_bandwidth_bytes_per_s=bandwidth, read_latency_ns=latency, concurrent_operations=limit)
    waves = 1 if limit is None else math.ceil(Fraction(operations, limit))
    ideal = waves * latency + Fraction(size * NS_PER_S, bandwidth)
    assert 0 <= device.read_ns(size, operations) - ideal < 1
    busy = device.busy_read_ns(size)
    assert size * NS_PER_S <= busy * bandwidth


def test_busy_time_leaves_latency_out() -> None:
    assert a_device().busy_read_ns(10**9) == 20_000_000
    assert a_device().busy_write_ns(10**9) == 40_000_000


def test_writes_have_their_own_bandwidth_and_latency() -> None:
    assert a_device().write_ns(50) == 300 + 2


def test_operations_beyond_the_limit_wait_a_latency() -> None:
    assert a_device(concurrent_operations=10).read_ns(0, operations=21) == 3 * 200
    assert a_device().read_ns(0, operations=21) == 200


def test_no_operations_take_no_time() -> None:
    assert a_device().read_ns(0, operations=0) == 0


@pytest.mark.parametrize(("size", "operations"), [(1, 0), (0, -1), (-1, 1)])
def test_impossible_transfers_are_refused(size: int, operations: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        a_device().read_ns(size, operations)


def test_op_22_a_lookup_of_many_keys_is_one_round_trip() -> None:
    device = a_device(lookup_ns=1000)
    assert [device.lookup_batch_ns(keys) for keys in (0, 1, 5000)] == [0, 1000, 1000]


def test_op_22_a_lookup_that_costs_nothing_takes_no_time() -> None:
    assert a_device(lookup_ns=0).lookup_batch_ns(5000) == 0


# --- units, presets, sources


def test_op_35_no_number_is_without_a_unit() -> None:
    words = {"name", "medium", "basis", "help", "sources"}
    numbers = [field.name for field in fields(Device) if field.name not in words]
    assert [name for name in [*numbers, *(figure.key for figure in FIGURES)] if not name.endswith(UNITS)] == []


def test_op_35_a_gigabyte_is_a_billion_bytes() -> None:
    device = make_device("nvme-gen4")
    assert device.read_bandwidth_bytes_per_s == 7 * 10**9
    assert device.read_latency_ns == 80_000
    assert device.drive_capacity_bytes == 3840 * 10**9


def test_every_field_of_a_device_can_be_set_in_the_file() -> None:
    words = {"name", "medium", "basis", "help", "sources"}
    assert {figure.field for figure in FIGURES} | words == {field.name for field in fields(Device)}


@pytest.mark.parametrize("device", load_devices().values(), ids=lambda device: device.name)
def test_every_figure_of_a_preset_has_a_source(device: Device) -> None:
    assert device.help
    unset = {"concurrent_operations", "rated_drive_writes_per_day", "drive_capacity_gb"}
    keys = [figure.key for figure in FIGURES if figure.key not in unset or getattr(device, figure.field) is not None]
    assert [key for key in keys if device.source(key) in (None, "", "devices.toml")] == []
    assert {key for key, _ in device.sources} == set(keys)


def test_the_defaults_of_opal_are_among_the_presets() -> None:
    presets = [make_device(name) for name in ("opal-cpu", "opal-nvme", "opal-dfs")]
    assert [preset.read_bandwidth_bytes_per_s // 10**9 for preset in presets] == [50, 10, 100]
    assert [preset.read_latency_ns for preset in presets] == [200, 10_000, 100_000]
    assert [preset.concurrent_operations for preset in presets] == [1_000_000, 1000, 1000]


def test_a_parameter_changes_its_figure_and_its_source_and_nothing_else() -> None:
    preset = make_device("nvme-gen4")
    device = make_device("nvme-gen4", read_gb_per_s=6.5)
    assert device.source("read_gb_per_s") == "given as a parameter"
    assert replace(device, read_bandwidth_bytes_per_s=7 * 10**9, sources=preset.sources) == preset


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.key)
def test_every_parameter_changes_its_field(figure: Figure) -> None:
    device = make_device("nvme-gen4", **{figure.key: 17})
    assert getattr(device, figure.field) == 17 * (figure.scale or 1)


def test_parameters_may_be_text_and_those_that_are_none_change_nothing() -> None:
    assert make_device("opal-cpu", read_latency_us="0.5", write_latency_us=None).read_latency_ns == 500
    assert make_device("opal-cpu", concurrent_operations="unlimited").concurrent_operations is None


def test_figures_are_exact_and_what_is_finer_than_the_unit_is_slower() -> None:
    device = make_device("s3", read_gb_per_s=0.3, read_latency_us=0.1, write_gb_per_s="1.9e-9", write_latency_us=1e-9)
    assert (device.read_bandwidth_bytes_per_s, device.read_latency_ns) == (300_000_000, 100)
    assert (device.write_bandwidth_bytes_per_s, device.write_latency_ns) == (1, 1)


def test_an_unknown_device_is_told_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown device 'nvme-gen6'; did you mean 'nvme-gen[345]'\?"):
        make_device("nvme-gen6")


def test_an_unknown_parameter_is_told_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'read_gbps'; did you mean 'read_gb_per_s'\?"):
        make_device("nvme-gen4", read_gbps=7)


# --- a user's file


def test_a_file_adds_a_device(tmp_path: Path) -> None:
    path = a_file(tmp_path, A_TABLE)
    devices = load_devices(path)
    assert set(devices) - set(load_devices()) == {"mine"}
    assert devices["mine"].read_bandwidth_bytes_per_s == 6_500_000_000
    assert devices["mine"].source("read_gb_per_s") == str(path)
    assert make_device("mine", devices=devices, lookup_us=1).lookup_ns == 1000


def test_a_file_changes_what_it_gives_of_a_preset(tmp_path: Path) -> None:
    path = a_file(tmp_path, '[cpu-pcie5]\nread_gb_per_s = 54\nsources.read_gb_per_s = "measured"')
    changed, preset = load_devices(path)["cpu-pcie5"], make_device("cpu-pcie5")
    assert changed.source("read_gb_per_s") == "measured"
    assert replace(changed, read_bandwidth_bytes_per_s=50 * 10**9, sources=preset.sources) == preset


def test_a_file_makes_a_device_like_another(tmp_path: Path) -> None:
    path = a_file(tmp_path, '[stripe]\nlike = "nvme-gen4"\nread_gb_per_s = 28\n[more]\nlike = "stripe"')
    devices = load_devices(path)
    assert devices["more"].read_bandwidth_bytes_per_s == 28 * 10**9
    assert devices["more"].read_latency_ns == 80_000
    assert find_device(devices, "nvme-gen4") == make_device("nvme-gen4")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[cpu-pcie5]\nread_gbps = 54", r"device cpu-pcie5: unknown key 'read_gbps'; did you mean 'read_gb_per_s'\?"),
        ("[cpu-pcie5]\nsources.read_gbps = 'x'", r"sources: unknown key 'read_gbps'; did you mean"),
        ("[cpu-pcie5]\nread_gb_per_s = 0", r"device cpu-pcie5: read_gb_per_s = 0 must be a number from 1e-09"),
        ("[cpu-pcie5]\nread_gb_per_s = -1.5", "read_gb_per_s = -1.5 must be a number"),
        ("[cpu-pcie5]\nread_gb_per_s = inf", "read_gb_per_s = inf must be a number|read_gb_per_s = Infinity must be"),
        ("[cpu-pcie5]\nread_gb_per_s = nan", "read_gb_per_s = NaN must be a number"),
        ("[cpu-pcie5]\nread_gb_per_s = 1e999999999", "read_gb_per_s = 1E.999999999 must be a number"),
        ("[cpu-pcie5]\nread_gb_per_s = true", "read_gb_per_s = True must be a number"),
        ("[cpu-pcie5]\nread_gb_per_s = '54'", "read_gb_per_s = '54' must be a number"),
        ("[cpu-pcie5]\nread_latency_us = 'unlimited'", "read_latency_us = 'unlimited' must be a number"),
        ("[cpu-pcie5]\nread_latency_us = -1", "read_latency_us = -1 must be a number from 0"),
        ("[cpu-pcie5]\nconcurrent_operations = 0", "concurrent_operations = 0 must be a number from 1"),
        ("[cpu-pcie5]\nmedium = 'nvm'", r"medium = 'nvm' is not one of these; did you mean 'nvme'\?"),
        ("[cpu-pcie5]\nhelp = 3", "help = 3 must be text"),
        ("[cpu-pcie5]\nsources = 'me'", "sources = 'me' must be a table"),
        ("[cpu-pcie5]\ndrive_capacity_gb = 1000", "device cpu-pcie5: endurance is .* both or neither"),
        ("[mine]\nlike = 'nvme-gen'", r"device mine: like = 'nvme-gen' is no device; did you mean 'nvme-gen"),
        ("[mine]\nmedium = 'nvme'", "device mine: basis is missing"),
        (A_TABLE.replace("read_latency_us = 0.1\n", ""), "device mine: read_latency_us is missing"),
        ("mine = 7.5", r"mine = 7.5 is outside of a device"),
        ("['a,b']\nmedium = 'nvme'", "device name 'a,b' must be text without commas"),
        ("[mine", "not valid TOML"),
    ],
)
def test_an_error_in_a_file_names_the_file_and_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = a_file(tmp_path, text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}.*(?:{says})"):
        load_devices(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load_devices(tmp_path / "none.toml")


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(ConfigError, match=r"latin\.toml: cannot be read"):
        load_devices(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"read_bandwidth_bytes_per_s": 0}, "read_bandwidth_bytes_per_s = 0 must be a whole number, at least 1"),
        ({"read_latency_ns": 0.5}, "read_latency_ns = 0.5 must be a whole number"),
        ({"concurrent_operations": 0}, "concurrent_operations = 0 must be"),
        ({"basis": "guess"}, "basis = 'guess' is not one of"),
    ],
)
def test_a_device_made_in_code_is_checked_too(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        a_device(**changes)


# --- wear


def test_e12_bytes_written_are_told_per_day_and_as_writes_of_the_drive() -> None:
    """1.92 TB in six hours on a drive of 3.84 TB: 7.68 TB a day, the drive twice."""
    assert bytes_per_day(1920 * 10**9, DAY_NS // 4) == 7680 * 10**9
    assert drive_writes_per_day(1920 * 10**9, 3840 * 10**9, DAY_NS // 4) == 2.0


@pytest.mark.parametrize("duration", [None, 0])
def test_e12_without_a_duration_there_is_no_wear_per_day(duration: int | None) -> None:
    assert bytes_per_day(10**9, duration) is None
    assert drive_writes_per_day(10**9, 10**12, duration) is None


def test_e12_hits_lost_are_told_for_each_byte_avoided() -> None:
    assert hits_lost_per_byte_avoided(100, 5000, 90, 1000) == 10 / 4000
    assert hits_lost_per_byte_avoided(100, 5000, 110, 5000) is None


def test_e12_a_rating_says_what_may_be_written_in_a_day() -> None:
    assert make_device("nvme-gen3").rated_bytes_per_day == pytest.approx(1.3 * 3840 * 10**9)
    assert make_device("cpu-pcie5").rated_bytes_per_day is None
