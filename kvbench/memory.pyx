"""Memory of the core that Python code may look at.

A view handed to a plugin keeps the memory alive by itself, so a policy that holds on to a view
after its tier is gone reads old numbers, never freed memory.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBUF_FORMAT
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free


cdef class Memory:
    """``size`` zeroed integers, readable from Python through the buffer protocol.

    Large blocks are left to the kernel's zero pages: capacity that a trace never reaches costs
    no memory.
    """

    def __dealloc__(self):
        free(self.start)

    cdef int setup(self, Py_ssize_t size, Py_ssize_t width, const char* format) except -1:
        # Called by the subclasses: a virtual method would still be the base's in its __cinit__.
        self.size = size
        self.shape[0] = size
        self.strides[0] = width
        self.format = format
        self.start = large_calloc(max(size, 1), width)
        if self.start == NULL:
            no_memory("tier", size)
        return 0

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the core's memory is read-only")
        view.buf = self.start
        view.obj = self
        view.len = self.size * self.strides[0]
        view.readonly = 1
        view.itemsize = self.strides[0]
        view.format = NULL
        if flags & PyBUF_FORMAT:
            view.format = <char*>self.format
        view.ndim = 1
        view.shape = self.shape
        view.strides = self.strides
        view.suboffsets = NULL
        view.internal = NULL


cdef class Int32Memory(Memory):
    """Signed 32-bit integers."""

    def __cinit__(self, Py_ssize_t size):
        self.setup(size, sizeof(int32_t), b"i")
        self.data = <int32_t*>self.start


cdef class UInt64Memory(Memory):
    """Unsigned 64-bit integers."""

    def __cinit__(self, Py_ssize_t size):
        self.setup(size, sizeof(uint64_t), b"Q")
        self.data = <uint64_t*>self.start


cdef class Int64Memory(Memory):
    """Signed 64-bit integers."""

    def __cinit__(self, Py_ssize_t size):
        self.setup(size, sizeof(int64_t), b"q")
        self.data = <int64_t*>self.start


cdef int no_memory(const char* what, int64_t wanted) except -1 nogil:
    """Raise the MemoryError for an allocation of ``wanted`` entries that failed."""
    with gil:
        raise MemoryError(f"{what.decode()}: no memory for {wanted:,} entries")
