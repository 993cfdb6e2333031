from libc.stdint cimport int32_t, int64_t


# The part of one prompt that a step computes.
cdef struct Chunk:
    int64_t new                  # tokens computed in this step
    int64_t context              # tokens of the request whose KV is there before them
    int64_t cached               # of the context, tokens that a cache gave; 0 but in the first chunk of a request


cdef struct Step:
    const Chunk* chunks
    int32_t prefills             # how many chunks
    int32_t decodes              # requests that generate one token each
    int64_t new_tokens           # sum over the chunks
    int64_t decode_context       # tokens of context, summed over the decoding requests
    int64_t held_tokens          # KV tokens that running requests hold on the GPU, prefix hits included
    int64_t capacity_tokens      # that fit there; 0: no bound


# Prompts whose first chunk the step computes: all that is there before it came from a cache.
cdef inline int64_t prompts_begun(const Step* step) noexcept nogil:
    cdef int64_t begun = 0
    cdef int32_t at
    for at in range(step.prefills):
        begun += step.chunks[at].new > 0 and step.chunks[at].context == step.chunks[at].cached
    return begun


cdef class ComputeModel:
    cdef int64_t step_ns(self, const Step* step) except -1 nogil
    cdef double exact_ns(self, const Step* step) except? -1 nogil
    cdef int64_t prefill_ns(self, int64_t new, int64_t context) except -1 nogil


cdef class FloatModel(ComputeModel):
    pass


cdef class MixedModel(FloatModel):
    cdef bint longer
    cdef double prefill_part_ns(self, const Step* step) except? -1 nogil
    cdef double decode_part_ns(self, const Step* step) except? -1 nogil


cdef class ComputeStep:
    cdef const Step* step
    cdef readonly int64_t new_tokens, decode_context, held_tokens, capacity_tokens
    cdef readonly int32_t prefills, decodes

    cdef int show(self, const Step* step) except -1


cdef class PythonComputeModel(ComputeModel):
    pass
