"""A compute model that looks times up in measured grids."""

from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free

from kvbench.serving.compute cimport MixedModel, Step

from kvbench.errors import ConfigError


cdef class Grid:
    """Times over one or two axes, interpolated linearly between measured points.

    ``name``          what it is a table of, for errors.
    ``axes``          (name, values in rising order) of each axis; the second one may be missing.
    ``times_ns``      at every point, those of the second axis following each other.
    ``extrapolate``   beyond the axes the outermost piece goes on, down to 0; else that is a ConfigError.
    """

    cdef str name
    cdef tuple names
    cdef bint extrapolate, plane
    cdef int32_t columns, rows
    cdef double* x
    cdef double* y
    cdef double* values

    def __cinit__(self, str name, axes, times_ns, bint extrapolate):
        self.name = name
        self.names = tuple(axis[0] for axis in axes)
        self.extrapolate = extrapolate
        self.plane = len(axes) > 1
        self.columns = len(axes[0][1])
        self.rows = len(axes[1][1]) if self.plane else 1
        if self.columns < 1 or len(times_ns) != self.columns * self.rows:
            raise ConfigError(f"{name}: {len(times_ns)} times do not fill {self.columns} × {self.rows} points")
        self.x = <double*>calloc(self.columns, sizeof(double))
        self.y = <double*>calloc(self.rows, sizeof(double))
        self.values = <double*>calloc(self.columns * self.rows, sizeof(double))
        if self.x == NULL or self.y == NULL or self.values == NULL:
            raise MemoryError
        for at, value in enumerate(axes[0][1]):
            self.x[at] = value
        for at, value in enumerate(axes[1][1] if self.plane else ()):
            self.y[at] = value
        for at, value in enumerate(times_ns):
            self.values[at] = value

    def __dealloc__(self):
        free(self.x)
        free(self.y)
        free(self.values)

    @property
    def is_plane(self):
        """Whether it has two axes."""
        return self.plane

    cdef double time_ns(self, double x, double y) except? -1 nogil:
        """The time at ``x`` and, on two axes, ``y``."""
        cdef double s = 0.0, t = 0.0, near, far
        cdef int32_t column = self.locate(self.x, self.columns, 0, x, &s)
        cdef int32_t row = self.locate(self.y, self.rows, 1, y, &t) if self.plane else 0
        near = self.along(column, row, t)
        if self.columns > 1:
            far = self.along(column + 1, row, t)
            near = between(near, far, s)
        return near if near > 0 else 0.0

    cdef double along(self, int32_t column, int32_t row, double t) noexcept nogil:
        cdef double* start = self.values + column * self.rows + row
        return start[0] if self.rows == 1 else between(start[0], start[1], t)

    cdef int32_t locate(self, const double* axis, int32_t points, int32_t which, double at, double* share) except -1 nogil:
        """The piece of ``axis`` that ``at`` is on, or is nearest to, and how far along it is."""
        cdef int32_t low = 0, high = points - 1, middle
        if not axis[0] <= at <= axis[high] and not self.extrapolate:
            with gil:
                raise ConfigError(
                    f"{self.name}: {self.names[which]} = {at:g} is beyond what was measured, {axis[0]:g} to "
                    f"{axis[high]:g}; measure more, or set extrapolate=true"
                )
        if points == 1:
            return 0
        while high - low > 1:
            middle = (low + high) // 2
            if axis[middle] <= at:
                low = middle
            else:
                high = middle
        share[0] = (at - axis[low]) / (axis[high] - axis[low])
        return low


cdef inline double between(double a, double b, double share) noexcept nogil:
    """From ``a`` to ``b``: between two points never outside of them, whatever the rounding."""
    cdef double value = a + (b - a) * share
    if 0 <= share <= 1:
        if value > a and value > b:
            return a if a > b else b
        if value < a and value < b:
            return a if a < b else b
    return value


cdef class Timetable(MixedModel):
    """Times looked up in tables.

    ``prefill``  :class:`Grid` over the new tokens of a step; or over new tokens and context of a chunk, and
                 then the chunks of a step add up.
    ``decode``   over the requests that decode, or (``by_context``) the tokens of their context in all; and,
                 with a second axis, their mean context. None: a step with decodes is an error.
    """

    cdef Grid prefill, decode
    cdef bint planar, by_context

    def __init__(self, context, Grid prefill, Grid decode, *, bint by_context, mix):
        self.prefill = prefill
        self.decode = decode
        self.planar = prefill is not None and prefill.is_plane
        self.by_context = by_context
        self.set_mix(mix)

    cdef double prefill_part_ns(self, const Step* step) except? -1 nogil:
        cdef double time_ns = 0.0
        cdef int32_t at
        if self.prefill is None:
            missing("prefill")
        if not self.planar:
            return self.prefill.time_ns(step.new_tokens, 0)
        for at in range(step.prefills):
            if step.chunks[at].new > 0:
                time_ns += self.prefill.time_ns(step.chunks[at].new, step.chunks[at].context)
        return time_ns

    cdef double decode_part_ns(self, const Step* step) except? -1 nogil:
        cdef double x = step.decode_context if self.by_context else step.decodes
        if self.decode is None:
            missing("decode")
        return self.decode.time_ns(x, <double>step.decode_context / step.decodes)


cdef int missing(str part) except -1 nogil:
    with gil:
        raise ConfigError(f"compute model table: a step has a {part} part, of which there is no table; give {part}=FILE")
