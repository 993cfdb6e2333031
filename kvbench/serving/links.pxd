from libc.stdint cimport int32_t, int64_t

from kvbench.serving.fixed cimport u128
from kvbench.serving.heap cimport Heap
from kvbench.serving.link cimport Link
from kvbench.serving.turns cimport Turns


cdef class Transfers(Turns):
    cdef readonly int32_t under_way         # waiting or in flight
    cdef readonly int64_t now_ns
    cdef int64_t started
    cdef Heap done                          # ended and not yet popped, by the end

    # For the core. Counters of links are those of the last call of observe.
    cdef int64_t start(
        self, int32_t path, int64_t size_bytes, int64_t operations, int64_t owner, int64_t now_ns
    ) except -1 nogil
    cdef int64_t next_ns(self) noexcept nogil
    cdef int advance(self, int64_t now_ns) except -1 nogil
    cdef int pop_done(self, int64_t* handle, int64_t* owner, int64_t* end_ns) except -1 nogil
    cdef int64_t moved(self, int64_t handle, int64_t now_ns) noexcept nogil
    cdef int cancel(self, int64_t handle, int64_t now_ns) except -1 nogil
    cdef int64_t estimate_ns(self, int32_t path, int64_t size_bytes, int64_t operations, int64_t now_ns) noexcept nogil
    cdef void observe(self, int64_t now_ns) noexcept with gil

    cdef u128 next_change(self) noexcept nogil
    cdef int end_delay(self, int32_t slot) except -1 nogil
    cdef int end_flow(self, int32_t slot) except -1 nogil
    cdef int pass_on(self, int32_t slot) except -1 nogil
    cdef u128 alone(self, int32_t number, int64_t size_bytes, int64_t operations) noexcept nogil
    cdef int64_t not_before_now(self, time_ns) except -1
