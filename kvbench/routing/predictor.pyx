"""What a router believes of its own decisions: the blocks of a request are with the worker that got it.

Nobody tells such an index what was evicted. It forgets by time, or by a model of each worker's cache.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.cache.events cimport DELETE, EventLog
from kvbench.cache.tier cimport Tier
from kvbench.memory cimport no_memory
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.load cimport NEVER, Moment, make_span, passed

from kvbench.eviction import PolicyContext
from kvbench.eviction.lru import Lru


cdef class Predictor:
    """Base: tells ``index``, made with ``predicts``, what its router decided."""

    def __cinit__(self, KvbmIndex index, *args, **kwargs):
        if index.levels == index.tiers:
            raise ValueError("the index has no level for predictions")
        self.index = index

    cdef int predict(self, const uint64_t* keys, int32_t n, int32_t worker, Moment now) except -1 nogil:
        """A request for these keys has gone to ``worker``."""
        return 0

    cdef int advance(self, Moment now) except -1 nogil:
        """Forget what is too old by now."""
        return 0


@cython.final
cdef class TimedPredictor(Predictor):
    """Believes a prediction for ``ttl``, a :class:`kvbench.units.Lag`; each request renews those of its blocks."""

    def __cinit__(self, KvbmIndex index, *, ttl):
        self.ttl = make_span(ttl)
        self.grow()

    def __dealloc__(self):
        free(self.made)

    cdef int predict(self, const uint64_t* keys, int32_t n, int32_t worker, Moment now) except -1 nogil:
        cdef Prediction* made
        cdef int32_t i
        for i in range(n):
            # Copies of a prediction are counted, so the last one to end decides.
            self.index.add(keys[i], self.index.tiers, worker, keys[i - 1] if i else 0, i > 0)
            if self.ttl.length == NEVER:
                continue
            if self.count - self.first == self.room:
                self.grow()
            made = &self.made[self.count & (self.room - 1)]
            made.made = now
            made.key = keys[i]
            made.worker = worker
            self.count += 1
        return 0

    cdef int advance(self, Moment now) except -1 nogil:
        cdef Prediction* made
        while self.first < self.count:
            made = &self.made[self.first & (self.room - 1)]
            if not passed(self.ttl, made.made, now):
                break
            self.index.drop(made.key, self.index.tiers, made.worker)
            self.first += 1
        return 0

    cdef int grow(self) except -1 nogil:
        cdef int64_t number, room = max(<int64_t>1024, 2 * self.room)
        cdef Prediction* made = <Prediction*>calloc(room, sizeof(Prediction))
        if made == NULL:
            no_memory("predictions", room)
        for number in range(self.first, self.count):
            made[number & (room - 1)] = self.made[number & (self.room - 1)]
        free(self.made)
        self.made = made
        self.room = room
        return 0


@cython.final
cdef class MirrorPredictor(Predictor):
    """Models each worker by an LRU cache of ``capacity`` blocks that sees this router's requests alone."""

    def __cinit__(self, KvbmIndex index, *, int32_t capacity):
        cdef Py_ssize_t w
        self.log = EventLog()
        self.mirrors = [Tier(Lru(PolicyContext(capacity)), log=self.log, worker=w) for w in range(index.workers)]
        self.mirror_of = <PyObject**>calloc(index.workers, sizeof(PyObject*))
        if self.mirror_of == NULL:
            no_memory("predictions", index.workers)
        for w in range(index.workers):
            self.mirror_of[w] = <PyObject*>self.mirrors[w]

    def __dealloc__(self):
        free(self.mirror_of)

    cdef int predict(self, const uint64_t* keys, int32_t n, int32_t worker, Moment now) except -1 nogil:
        cdef PyObject* mirror = self.mirror_of[worker]
        cdef int64_t i
        if n == 0:
            return 0
        (<Tier>mirror).reserve(keys, n)
        (<Tier>mirror).view.request.index = now.request
        (<Tier>mirror).lookup(keys, n, n)
        (<Tier>mirror).commit(keys, n)
        for i in range(self.log.size):
            if self.log.events[i].kind == DELETE:
                self.index.drop(self.log.events[i].key, self.index.tiers, worker)
            else:
                self.index.add(
                    self.log.events[i].key, self.index.tiers, worker, self.log.events[i].parent,
                    self.log.events[i].has_parent,
                )
        self.log.forget()
        return 0
