"""Memory of the core that Python code may look at.

A view handed to a plugin keeps the memory alive by itself, so a policy that holds on to a view
after its tier is gone reads old numbers, never freed memory.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBUF_FORMAT
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free


cdef class Int32Memory:
    """``size`` zeroed 32-bit integers, readable from Python through the buffer protocol.

    ``calloc`` leaves large blocks to the kernel's zero pages: capacity that a trace never
    reaches costs no memory.
    """

    def __cinit__(self, Py_ssize_t size):
        self.size = size
        self.shape[0] = size
        self.strides[0] = sizeof(int32_t)
        self.data = <int32_t*>calloc(max(size, 1), sizeof(int32_t))
        if self.data == NULL:
            raise MemoryError(f"cannot allocate {size} slots")

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the core's memory is read-only")
        view.buf = self.data
        view.obj = self
        view.len = self.size * sizeof(int32_t)
        view.readonly = 1
        view.itemsize = sizeof(int32_t)
        view.format = NULL
        if flags & PyBUF_FORMAT:
            view.format = b"i"
        view.ndim = 1
        view.shape = self.shape
        view.strides = self.strides
        view.suboffsets = NULL
        view.internal = NULL


cdef int no_memory(const char* what, int64_t wanted) except -1 nogil:
    """Raise the MemoryError for an allocation of ``wanted`` entries that failed."""
    with gil:
        raise MemoryError(f"{what.decode()}: no memory for {wanted:,} entries")
