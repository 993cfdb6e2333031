from libc.stdint cimport int32_t, int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #define KVB_NEVER_NS INT64_MAX
    """
    const int64_t NEVER_NS "KVB_NEVER_NS"   # later than everything


cdef struct Alarm:
    int64_t time_ns
    int64_t sequence     # given by push: what was set first for one time rings first
    int32_t kind         # these three are the caller's
    int32_t worker
    int64_t data


cdef class Clock:
    cdef readonly int64_t now_ns
    cdef Alarm* alarms     # a binary heap
    cdef int64_t count, room, pushed

    cdef int push(self, int64_t time_ns, int32_t kind, int32_t worker, int64_t data) except -1 nogil
    cdef int64_t next_ns(self) noexcept nogil
    cdef int pop(self, Alarm* alarm) except -1 nogil
    cdef int move_to(self, int64_t time_ns) except -1 nogil
