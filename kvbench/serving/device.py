"""A device: what it takes to read from, write to and look into the place where a tier lives.

Times are whole nanoseconds, sizes bytes, bandwidths bytes per second (GB/s = 10⁹ bytes/s). All
arithmetic is on integers and rounds up, so nothing is ever faster than stated:

- one operation takes ``latency + size / bandwidth``, whatever its size (no quantum, semantics §9.4);
- ``busy`` is the time a direction of the link transfers: ``bytes / bandwidth``. Latency is no part
  of it and is reported apart, so bytes moved / busy time ≤ bandwidth, always. Busy time over a run's
  duration is the load of the link.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvbench.errors import ConfigError
from kvbench.units import NS_PER_S

DAY_NS = 24 * 3600 * NS_PER_S

MEDIUMS = ("gpu", "cpu", "nvme", "dfs", "object", "rdma")
"""What a device can be: GPU memory, host memory, a local drive, a distributed file system, an
object store, a peer's memory over the network."""

BASES = ("nominal", "effective", "model")
"""What its figures are: of a specification sheet or line rate; what software is seen to reach; or
the constants of another simulator, kept to reproduce it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The figures of a device. The factories in :mod:`kvbench.serving.devices` make it from a preset.

    ``name``, ``medium``, ``basis``, ``help``  what it is called; one of :data:`MEDIUMS`, of
                               :data:`BASES`; one line.
    ``read_bandwidth_bytes_per_s``, ``write_bandwidth_bytes_per_s``  of each direction, shared by
                               whatever is in flight in it.
    ``read_latency_ns``, ``write_latency_ns``  of one operation, before its first byte.
    ``lookup_ns``              one round trip that asks whether keys are present; 0: the index is
                               at hand. A batch of keys is one round trip.
    ``concurrent_operations``  how many may be in flight; None: any number.
    ``rated_drive_writes_per_day``, ``drive_capacity_bytes``  endurance of a drive: how often a day
                               it may be written in full, and what full is. Both or neither.
    ``sources``                (key of the presets file, where its figure comes from), in pairs.
    """

    name: str
    medium: str
    basis: str
    help: str = ""
    read_bandwidth_bytes_per_s: int
    write_bandwidth_bytes_per_s: int
    read_latency_ns: int
    write_latency_ns: int
    lookup_ns: int = 0
    concurrent_operations: int | None = None
    rated_drive_writes_per_day: float | None = None
    drive_capacity_bytes: int | None = None
    sources: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        self._check_choice("medium", MEDIUMS)
        self._check_choice("basis", BASES)
        for field in ("read_bandwidth_bytes_per_s", "write_bandwidth_bytes_per_s"):
            self._check_minimum(field, 1)
        for field in ("read_latency_ns", "write_latency_ns", "lookup_ns"):
            self._check_minimum(field, 0)
        for field in ("concurrent_operations", "drive_capacity_bytes"):
            if getattr(self, field) is not None:
                self._check_minimum(field, 1)
        if (self.rated_drive_writes_per_day is None) != (self.drive_capacity_bytes is None):
            raise ConfigError(
                f"device {self.name}: endurance is drive writes per day of a drive's capacity; give both or neither"
            )

    def _check_choice(self, field: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if value not in choices:
            raise ConfigError(f"device {self.name}: {field} = {value!r} is not one of {', '.join(choices)}")

    def _check_minimum(self, field: str, minimum: int) -> None:
        value = getattr(self, field)
        if not isinstance(value, int) or value < minimum:
            raise ConfigError(f"device {self.name}: {field} = {value!r} must be a whole number, at least {minimum}")

    def read_ns(self, size_bytes: int, operations: int = 1) -> int:
        """Time from the start of ``operations`` reads of ``size_bytes`` in all to the end of the
        last one, on an otherwise idle device.

        They start together, at most ``concurrent_operations`` at a time; those beyond wait, so the
        latency is paid once a wave: ``waves · latency + size / bandwidth``. Neighbouring waves of a
        real device overlap a little; this is the bound from above.
        """
        return self._latency_ns(self.read_latency_ns, operations, size_bytes) + self.busy_read_ns(size_bytes)

    def write_ns(self, size_bytes: int, operations: int = 1) -> int:
        """The same for writes."""
        return self._latency_ns(self.write_latency_ns, operations, size_bytes) + self.busy_write_ns(size_bytes)

    def busy_read_ns(self, size_bytes: int) -> int:
        """How long the read direction transfers to move ``size_bytes``, in any number of operations."""
        return _transfer_ns(size_bytes, self.read_bandwidth_bytes_per_s)

    def busy_write_ns(self, size_bytes: int) -> int:
        """How long the write direction transfers to move ``size_bytes``, in any number of operations."""
        return _transfer_ns(size_bytes, self.write_bandwidth_bytes_per_s)

    def lookup_batch_ns(self, keys: int) -> int:
        """Time to ask whether ``keys`` keys are present: one round trip, none for no keys."""
        return self.lookup_ns if keys > 0 else 0

    @property
    def rated_bytes_per_day(self) -> float | None:
        """What may be written in a day within the drive's rating; None without one."""
        if self.rated_drive_writes_per_day is None or self.drive_capacity_bytes is None:
            return None
        return self.rated_drive_writes_per_day * self.drive_capacity_bytes

    def source(self, key: str) -> str | None:
        """Where the figure with this key of the presets file comes from; None if nobody said."""
        return dict(self.sources).get(key)

    def _latency_ns(self, latency_ns: int, operations: int, size_bytes: int) -> int:
        if operations < 0 or (operations == 0 and size_bytes > 0):
            raise ValueError(f"{size_bytes} bytes in {operations} operations")
        at_a_time = self.concurrent_operations or max(operations, 1)
        return -(-operations // at_a_time) * latency_ns


def _transfer_ns(size_bytes: int, bandwidth_bytes_per_s: int) -> int:
    if size_bytes < 0:
        raise ValueError(f"{size_bytes} bytes")
    return -(-size_bytes * NS_PER_S // bandwidth_bytes_per_s)


def bytes_per_day(written_bytes: int, duration_ns: int | None) -> float | None:
    """Bytes written per day, at the rate of ``written_bytes`` in ``duration_ns``; None when there
    was no duration (an order replay has no clock)."""
    return written_bytes * DAY_NS / duration_ns if duration_ns else None


def drive_writes_per_day(written_bytes: int, capacity_bytes: int, duration_ns: int | None) -> float | None:
    """How often a day a drive of ``capacity_bytes`` is written in full, at the rate of
    ``written_bytes`` in ``duration_ns``; None without a duration. A drive's rating is in this unit."""
    return written_bytes * DAY_NS / (capacity_bytes * duration_ns) if duration_ns else None


def hits_lost_per_byte_avoided(hits: int, written_bytes: int, fewer_hits: int, fewer_bytes: int) -> float | None:
    """The price of sparing a drive: hits lost for each byte that was not written, from a run with
    ``hits`` and ``written_bytes`` to one with ``fewer_hits`` and ``fewer_bytes``. Negative if the
    second run hits more; None if it avoids no byte."""
    avoided = written_bytes - fewer_bytes
    return (hits - fewer_hits) / avoided if avoided > 0 else None
