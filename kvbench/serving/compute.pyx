"""What a compute model is: something that says how long a step of an engine takes.

A step computes chunks of prompts (prefill) and one token for each decoding request. Times are whole
nanoseconds, rounded up. Models that calculate in floating point derive from :class:`FloatModel` and
use +, −, ×, ÷ and square roots alone, which IEEE 754 defines to the bit (the build forbids fused
multiply-add), so a step takes the same time on every machine. None of them takes less time for
more tokens.
"""

from libc.math cimport ceil
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from pathlib import Path

from kvbench.errors import ArgumentError, ConfigError, PolicyError

MIXES = ("sum", "max")
"""How the prefill and the decode part of one step add up: one after the other, or the longer one alone."""


class ComputeContext:
    """What a compute model is told when it is made: settings of the run, None where it has none.

    ``model``        name of the model, or the path of its ``config.json`` (``--model``).
    ``tp``           tensor-parallel ranks of a worker (``--tp``).
    ``kv_dtype``     of the KV cache (``--kv-dtype``).
    ``models_file``  file of more models (``--models``).
    """

    __slots__ = ("kv_dtype", "model", "models_file", "tp")

    def __init__(self, *, model: str | None = None, tp: int | None = None, kv_dtype: str | None = None,
                 models_file: Path | None = None) -> None:
        self.model = model
        self.tp = tp
        self.kv_dtype = kv_dtype
        self.models_file = models_file


cdef int64_t MOST_TOKENS = 1 << 48
cdef int32_t MOST_REQUESTS = 1 << 24
cdef double MOST_NS = 4.6e18
# What floating point may add to a time that is a whole number of nanoseconds.
cdef double NOISE_NS = 1e-6


cdef class ComputeModel:
    """Base of all compute models; compiled ones override ``step_ns``, declared in compute.pxd.

    Python classes derive from :class:`PythonComputeModel`. The constructor takes the
    :class:`ComputeContext` and the declared parameters by keyword.
    """

    def __cinit__(self, context, *args, **kwargs):
        pass

    cdef int64_t step_ns(self, const Step* step) except -1 nogil:
        """What the step takes; 0 for one that computes no token."""
        return 0

    cdef double exact_ns(self, const Step* step) except? -1 nogil:
        """The same before it is rounded up, for a step that computes tokens."""
        return <double>self.step_ns(step)

    cdef int64_t prefill_ns(self, int64_t new, int64_t context) except -1 nogil:
        """What a prompt takes alone: ``new`` tokens after ``context`` cached ones, in one step."""
        cdef Chunk chunk
        cdef Step step
        chunk.new = new
        chunk.context = context
        chunk.cached = context
        step.chunks = &chunk
        step.prefills = 1
        step.decodes = 0
        step.new_tokens = new
        step.decode_context = 0
        step.held_tokens = new + context
        step.capacity_tokens = 0
        return self.step_ns(&step)

    def step_time_ns(self, chunks, int32_t decodes=0, int64_t decode_context=0, int64_t held_tokens=0,
                     int64_t capacity_tokens=0, *, bint exact=False):
        """What a step takes: ``chunks`` of (new, context, cached) tokens, and ``decodes`` requests with
        ``decode_context`` tokens of context in all; ``held_tokens`` and ``capacity_tokens`` of the GPU.

        ``exact``  before it is rounded up, as a float.

        Raises ArgumentError for numbers that no step has.
        """
        chunks = list(chunks)
        _check_counts(decodes, decode_context, held_tokens, capacity_tokens)
        cdef Chunk* memory = <Chunk*>calloc(max(len(chunks), 1), sizeof(Chunk))
        if memory == NULL:
            raise MemoryError
        cdef Step step
        step.chunks = memory
        step.prefills = len(chunks)
        step.decodes = decodes
        step.new_tokens = 0
        step.decode_context = decode_context
        step.held_tokens = held_tokens
        step.capacity_tokens = capacity_tokens
        try:
            for at, (new, context, cached) in enumerate(chunks):
                if not (0 <= new <= MOST_TOKENS and 0 <= cached <= context <= MOST_TOKENS):
                    raise ArgumentError(
                        f"a chunk of {new} new, {context} context and {cached} cached tokens: "
                        "new is at least 0, and cached at most context"
                    )
                memory[at].new = new
                memory[at].context = context
                memory[at].cached = cached
                step.new_tokens += new
            if not exact:
                return self.step_ns(&step)
            return self.exact_ns(&step) if step.new_tokens or decodes else 0.0
        finally:
            free(memory)

    def prefill_time_ns(self, int64_t new, int64_t context=0):
        """What a prompt takes alone: ``new`` tokens after ``context`` cached ones, in one step."""
        if new < 0 or context < 0:
            raise ArgumentError(f"a prompt of {new} new and {context} context tokens: both are at least 0")
        return self.prefill_ns(new, context)


def _check_counts(decodes, decode_context, held_tokens, capacity_tokens):
    if not 0 <= decodes <= MOST_REQUESTS or min(decode_context, held_tokens, capacity_tokens) < 0:
        raise ArgumentError(
            f"a step of {decodes} decodes, {decode_context} tokens of their context, {held_tokens} tokens held and "
            f"{capacity_tokens} of capacity: none of these is negative"
        )
    if capacity_tokens and held_tokens > capacity_tokens:
        raise ArgumentError(f"{held_tokens} tokens held are more than the capacity of {capacity_tokens}")


cdef class FloatModel(ComputeModel):
    """Base of compiled models that calculate in floating point: they override ``exact_ns``, which is not
    asked about steps without work."""

    cdef int64_t step_ns(self, const Step* step) except -1 nogil:
        if step.new_tokens == 0 and step.decodes == 0:
            return 0
        cdef double time_ns = self.exact_ns(step)
        if not 0 <= time_ns <= MOST_NS:
            with gil:
                raise ConfigError(
                    f"{type(self).__name__} takes {time_ns / 1e9:g} s for a step of {step.new_tokens:,} prompt tokens "
                    f"and {step.decodes:,} decodes; correct its parameters"
                )
        return <int64_t>ceil(time_ns - NOISE_NS) if time_ns > NOISE_NS else 0


cdef class MixedModel(FloatModel):
    """Base of models with a prefill and a decode part, which are added, or of which the longer one
    counts; each is asked for only where the step has it. Prefills of one step add up in any case (OP-67).
    The subclass calls :meth:`set_mix`."""

    cdef double prefill_part_ns(self, const Step* step) except? -1 nogil:
        return 0.0

    cdef double decode_part_ns(self, const Step* step) except? -1 nogil:
        return 0.0

    cdef double exact_ns(self, const Step* step) except? -1 nogil:
        cdef double prefill = self.prefill_part_ns(step) if step.new_tokens else 0.0
        cdef double decode = self.decode_part_ns(step) if step.decodes else 0.0
        if self.longer:
            return prefill if prefill > decode else decode
        return prefill + decode

    def set_mix(self, mix):
        """``mix`` is one of :data:`MIXES`."""
        if mix not in MIXES:
            raise ConfigError(f"mix = {mix!r} is not one of {', '.join(MIXES)}")
        self.longer = mix == "max"


cdef class ComputeStep:
    """A step as a model in Python sees it; good until ``step`` returns.

    ``prefills``, ``new_tokens``  chunks of prompts, and the tokens they compute.
    ``decodes``, ``decode_context``  requests that generate one token each, and the tokens of their context.
    ``held_tokens``, ``capacity_tokens``  KV that running requests hold on the GPU, and what fits (0: no bound).
    """

    cdef int show(self, const Step* step) except -1:
        self.step = step
        self.prefills = step.prefills
        self.decodes = step.decodes
        self.new_tokens = step.new_tokens
        self.decode_context = step.decode_context
        self.held_tokens = step.held_tokens
        self.capacity_tokens = step.capacity_tokens
        return 0

    @property
    def chunks(self):
        """The chunks: (new, context, cached) tokens of each."""
        if self.step == NULL:
            raise ArgumentError("a step is over when the model has returned")
        return [(self.step.chunks[at].new, self.step.chunks[at].context, self.step.chunks[at].cached)
                for at in range(self.prefills)]


cdef class PythonComputeModel(ComputeModel):
    """A compute model written in Python. Override ``step``. A step without work is not shown to it
    and takes 0."""

    def __init__(self, context):
        pass

    def step(self, step):
        """What ``step``, a :class:`ComputeStep`, takes: whole nanoseconds, at least 0."""
        raise NotImplementedError(f"{type(self).__name__} must define step(step)")

    cdef int64_t step_ns(self, const Step* step) except -1 nogil:
        if step.new_tokens == 0 and step.decodes == 0:
            return 0
        with gil:
            view = ComputeStep()
            view.show(step)
            time_ns = self.step(view)
            view.step = NULL
            if not isinstance(time_ns, int) or isinstance(time_ns, bool) or not 0 <= time_ns <= MOST_NS:
                raise PolicyError(
                    f"{type(self).__name__}.step returned {time_ns!r}; a step takes whole nanoseconds, at least 0"
                )
            return time_ns
