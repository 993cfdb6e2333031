"""Compute models that are formulas. Parameters are in milliseconds unless they say otherwise."""

from kvbench.serving.compute cimport MixedModel, Step, is_first

from kvbench.serving.quantities import ms_in_ns


cdef class Fixed(MixedModel):
    """Each prompt token takes the same time, and so does each step with decodes.

    prefill = ``prompt_ms`` for each prompt, once + ``prefill_ms_per_token`` · new tokens;
    decode = ``decode_ms``, whatever the batch.
    """

    cdef double prompt, token, decode

    def __init__(self, context, prefill_ms_per_token, decode_ms, prompt_ms=0.0, mix="sum"):
        self.prompt = ms_in_ns(prompt_ms)
        self.token = ms_in_ns(prefill_ms_per_token)
        self.decode = ms_in_ns(decode_ms)
        self.set_mix(mix)

    cdef double prefill_part_ns(self, const Step* step) noexcept nogil:
        return self.token * step.new_tokens + self.prompt * prompts_begun(step)

    cdef double decode_part_ns(self, const Step* step) noexcept nogil:
        return self.decode


cdef inline int prompts_begun(const Step* step) noexcept nogil:
    """Prompts whose first chunk this step computes."""
    cdef int begun = 0
    cdef int at
    for at in range(step.prefills):
        begun += step.chunks[at].new > 0 and is_first(&step.chunks[at])
    return begun
