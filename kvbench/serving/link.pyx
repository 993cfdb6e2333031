"""A link: one direction of a device or of a network link, and what has been counted at it."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.errors import ConfigError

SHARINGS = ("fair", "fifo")
"""How a link is shared: equally by all, or one transfer after the other in the order of their start."""


@cython.final
cdef class Link:
    """One direction of a device or of a network link.

    ``bandwidth_bytes_per_s``, ``latency_ns``  of the direction; of one operation, before its first byte.
    ``sharing``      ``fair``: all in flight have equal shares of the bandwidth; ``fifo``: one is in flight at a time.
    ``concurrency``  operations of one transfer that go at a time, for the latency is paid once a wave; and
                     transfers in flight at most, where the others wait in the order of their start. 0: any number.
    ``store``        number of the store that it leads to or from.

    Counters, as of the last look of :class:`Transfers`: ``moved_bytes``; ``busy_ns``, in which at least one
    transfer flowed, so that moved bytes over busy time is never above the bandwidth; ``operations`` and
    ``latency_sum_ns`` of the transfers that had their turn; of these ``in_flight`` now and at most; and
    those ``waiting``.

    Raises ConfigError for a bandwidth that moves nothing, a negative figure or an unknown way of sharing.
    """

    def __cinit__(
        self, str name, int64_t bandwidth_bytes_per_s, int64_t latency_ns, str sharing="fair",
        int64_t concurrency=0, int32_t store=0,
    ):
        if bandwidth_bytes_per_s < 1:
            raise ConfigError(f"link {name}: a bandwidth of {bandwidth_bytes_per_s} bytes/s moves nothing; give at least 1")
        if latency_ns < 0 or concurrency < 0:
            raise ConfigError(
                f"link {name}: a latency of {latency_ns} ns and a concurrency of {concurrency} must not be negative"
            )
        if sharing not in SHARINGS:
            raise ConfigError(f"link {name}: sharing = {sharing!r} is not one of {', '.join(SHARINGS)}")
        self.name = name
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self.latency_ns = latency_ns
        self.sharing = sharing
        self.concurrency = concurrency
        self.store = store
