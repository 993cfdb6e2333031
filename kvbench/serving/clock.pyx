"""The clock of a timed replay: whole nanoseconds, and the alarms set for later ones.

Alarms ring in the order of (time, sequence) (semantics §9.1), so a run is the same every time. Setting
one and taking the next cost O(log of those set).
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc

from kvbench.memory cimport no_memory

from kvbench.errors import ConfigError


cdef inline bint rings_before(const Alarm* a, const Alarm* b) noexcept nogil:
    return a.time_ns < b.time_ns or (a.time_ns == b.time_ns and a.sequence < b.sequence)


cdef int in_the_past(int64_t time_ns, int64_t now_ns) except -1 nogil:
    with gil:
        raise AssertionError(f"{time_ns:,} ns is past: it is {now_ns:,} ns")


cdef int beyond_the_end() except -1 nogil:
    with gil:
        raise ConfigError(
            f"the simulated clock ends at {NEVER_NS / 1e9:,.0f} s, and something is to happen later; check the units of "
            "think_time_ns and of the times that things take"
        )


cdef int passes_alarm(int64_t time_ns, int64_t alarm_ns) except -1 nogil:
    with gil:
        raise AssertionError(f"an alarm rings at {alarm_ns:,} ns, before {time_ns:,} ns")


@cython.final
cdef class Clock:
    """Simulated time from 0 on, which only moves forward.

    ``now_ns``  the time: of the alarm that was taken last, or what it was moved to since.
    """

    def __dealloc__(self):
        free(self.alarms)

    cdef int push(self, int64_t time_ns, int32_t kind, int32_t worker, int64_t data) except -1 nogil:
        """Set an alarm. AssertionError for a time that is past, ConfigError for one that 64 bits do not hold."""
        cdef Alarm* alarms
        cdef Alarm alarm
        cdef int64_t at, parent
        if time_ns < 0:
            beyond_the_end()  # a sum of two times that wrapped around
        if time_ns < self.now_ns:
            in_the_past(time_ns, self.now_ns)
        if self.count == self.room:
            alarms = <Alarm*>realloc(self.alarms, (2 * self.room + 64) * sizeof(Alarm))
            if alarms == NULL:
                no_memory("clock", 2 * self.room + 64)
            self.alarms = alarms
            self.room = 2 * self.room + 64
        alarm = Alarm(time_ns, self.pushed, kind, worker, data)
        self.pushed += 1
        at = self.count
        self.count += 1
        while at > 0:
            parent = (at - 1) >> 1
            if not rings_before(&alarm, &self.alarms[parent]):
                break
            self.alarms[at] = self.alarms[parent]
            at = parent
        self.alarms[at] = alarm
        return 0

    cdef int64_t next_ns(self) noexcept nogil:
        """When the next alarm rings; NEVER_NS if none is set."""
        return self.alarms[0].time_ns if self.count else NEVER_NS

    cdef int pop(self, Alarm* alarm) except -1 nogil:
        """Take the next alarm, and move to its time. Returns 1, or 0 if none is set."""
        cdef Alarm* last
        cdef int64_t at = 0, child
        if self.count == 0:
            return 0
        alarm[0] = self.alarms[0]
        self.now_ns = alarm.time_ns
        self.count -= 1
        last = &self.alarms[self.count]
        child = 1
        while child < self.count:
            if child + 1 < self.count and rings_before(&self.alarms[child + 1], &self.alarms[child]):
                child += 1
            if not rings_before(&self.alarms[child], last):
                break
            self.alarms[at] = self.alarms[child]
            at = child
            child = 2 * at + 1
        self.alarms[at] = last[0]
        return 1

    cdef int move_to(self, int64_t time_ns) except -1 nogil:
        """Let time pass, up to the next alarm at most. AssertionError for a time that is past, or
        beyond an alarm."""
        if time_ns < self.now_ns:
            in_the_past(time_ns, self.now_ns)
        if time_ns > self.next_ns():
            passes_alarm(time_ns, self.next_ns())
        self.now_ns = time_ns
        return 0

    def set_alarm(self, int64_t time_ns, *, int32_t kind=0, int32_t worker=0, int64_t data=0):
        """Set an alarm."""
        self.push(time_ns, kind, worker, data)

    def take_alarm(self):
        """The next alarm as (time_ns, kind, worker, data), whose time it is now; None if none is set."""
        cdef Alarm alarm
        if not self.pop(&alarm):
            return None
        return alarm.time_ns, alarm.kind, alarm.worker, alarm.data

    def wait_until(self, int64_t time_ns):
        """Let time pass without an alarm."""
        self.move_to(time_ns)

    @property
    def next_alarm_ns(self):
        """When the next alarm rings; None if none is set."""
        return self.next_ns() if self.count else None
