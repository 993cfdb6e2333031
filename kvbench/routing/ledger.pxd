from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kvbench.routing.load cimport LoadView, Moment, Routed, Span


cdef class LoadLedger:
    cdef list views
    cdef PyObject** view_of
    cdef int32_t count
    cdef LoadView truth
    cdef Span sync, period

    cdef int64_t assign(self, LoadView view, const Routed* record) except -1 nogil
    cdef int advance(self, LoadView view, Moment now) except -1 nogil
    cdef int prefill_ended(self, int64_t handle, Moment now) except -1 nogil
    cdef int ended(self, int64_t handle, Moment now) except -1 nogil


# How far a view is in the records of a window ledger.
cdef struct Progress:
    int64_t heard, prefilled, ended


cdef class WindowLedger(LoadLedger):
    cdef Span window, prefill
    cdef Routed* records       # a ring
    cdef int64_t room, first, last
    cdef Progress* progress    # of each view, and behind them of the truth

    cdef bint counts(self, int32_t number, const Routed* record, int64_t at) noexcept nogil
    cdef void catch_up(self, LoadView view, int32_t number, Moment now) noexcept nogil
    cdef int make_room(self) except -1 nogil
    cdef int64_t settle(self, Moment now) noexcept nogil
