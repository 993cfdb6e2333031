"""What a policy may look at: the slots of its tier, and the request being served.

The tier writes, the policy reads. Both hold the view, so what it points to outlives neither of
them too early.
"""

from kvbench.memory cimport Int32Memory, UInt64Memory


cdef class TierView:
    """The read-only side of a tier of ``slots`` slots. From Python, :class:`PythonPolicy` gives
    access to it."""

    def __cinit__(self, Py_ssize_t slots):
        self.refs_memory = Int32Memory(slots)
        self.keys_memory = UInt64Memory(slots)
        self.refs = self.refs_memory.data
        self.keys = self.keys_memory.data
        self.request.index = -1
        self.request.time_ns = self.request.input_tokens = self.request.turn = self.request.priority = -1
        self.request.session = self.request.tenant = self.request.type = -1
        self.parent = -1
        self.step = 1
        self.slots = NULL
        self.next_use = NULL
        self.stirs = 1  # whoever remembers zero, remembers nothing
