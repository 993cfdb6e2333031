from libc.stdint cimport int32_t, int64_t


# The counters are those of the last Transfers.observe.
cdef class Link:
    cdef readonly str name
    cdef readonly str sharing
    cdef readonly int32_t store
    cdef readonly int64_t bandwidth_bytes_per_s, latency_ns, concurrency
    cdef readonly int64_t moved_bytes, busy_ns, operations, latency_sum_ns
    cdef readonly int32_t in_flight, most_in_flight, waiting
