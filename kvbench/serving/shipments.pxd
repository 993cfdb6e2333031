from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint64_t

from kvbench.serving.holdings cimport Holdings
from kvbench.serving.request cimport Request
from kvbench.serving.traffic cimport Write


cdef class Shipments(Holdings):
    cdef int settle(self) except -1 nogil
    cdef int depart_filled(self, Request* request) except -1 nogil
    cdef int depart_below(self, PyObject* tier, int32_t level, int32_t* writes) except -1 nogil
    cdef int withdraw_events(self) except -1 nogil
    cdef int lose_unwritten(self) except -1 nogil
    cdef int lose(self, uint64_t key) except -1 nogil
    cdef int start_fetch(self, Request* request) except -1 nogil
    cdef int fetch_ended(self, Request* request) except -1 nogil
    cdef int start_writes(self, Request* request, int cause) except -1 nogil
    cdef int start_write(self, int32_t write) except -1 nogil
    cdef int write_ended(self, int32_t write) except -1 nogil
    cdef void unlink_write(self, Request* request, int32_t write) noexcept nogil
    cdef int note_reads(self, const Write* record, int32_t by) except -1 nogil
