"""A compute model that counts the operations and bytes of a model's layers on a GPU."""

from libc.stdint cimport int32_t, int64_t

from kvbench.serving.compute cimport FloatModel, Step

from kvbench.serving.quantities import at_least, in_ns


cdef class Roofline(FloatModel):
    """The longer one of what arithmetic and memory take, for the whole batch, and constants.

        ns = max(FLOPs of prefill / (peak · mfu) + FLOPs of decode / (peak · decode_mfu),
                 bytes / (bandwidth · bandwidth_efficiency)) + step_us + layers · layer_us

    FLOPs: 2 a parameter and token (of experts, those a token uses; the head once a chunk or generated
    token), and in each attention layer ``attention_flops`` a pair of tokens, of which a chunk has
    new · (context + new / 2), in layers with a window at most new · window. MLA multiplies whole keys in
    prefill, which are made of the context's latent vectors again, and the latent vectors in decode.
    Bytes: the weights once a step (of experts, those that some token of the batch chooses, expected for even
    choice), the KV of every context, the KV written, constant states. Weights, operations and heads are
    split over ``tp`` ranks; communication is left to the constants.

    Source: Williams, Waterman, Patterson, CACM 52(4), 2009; attention as in inference-sim (BLIS) roofline.go.
    """

    cdef double prefill_flop, decode_flop, byte, constant
    cdef double token_flops, head_flops, pair_flops, decode_pair_flops, expand_flops
    cdef double full, windowed, window
    cdef double common_bytes, experts_bytes, missed
    cdef double layer_bytes, written_bytes, state_bytes

    def __init__(self, context, *, decoder, layout, tflops, mfu, decode_mfu, bandwidth_gb_per_s,
                 bandwidth_efficiency, weight_dtype, step_us, layer_us):
        cdef int tp = layout.ranks
        self._set_rates(tflops, mfu, decode_mfu, bandwidth_gb_per_s * bandwidth_efficiency, tp)
        self.constant = in_ns("step_us", step_us) + decoder.layers * in_ns("layer_us", layer_us)
        self.token_flops = 2 * decoder.token_params
        self.head_flops = 2 * decoder.head_params
        self.pair_flops = decoder.attention_flops
        self.decode_pair_flops = decoder.decode_attention_flops
        kv, widths = decoder.kv, decoder.weights
        self.expand_flops = 2 * kv.latent_dim * widths.heads * (widths.nope_dim + decoder.value_dim)
        self.full, self.windowed, self.window = kv.full_layers, kv.window_layers, kv.window or 0
        size, expert_size = decoder.weight_bytes(weight_dtype)
        self.common_bytes = (decoder.common_params + decoder.head_params) * size / tp
        self.experts_bytes = decoder.expert_layers * widths.experts * decoder.expert_params * expert_size / tp
        self.missed = 1 - widths.experts_per_token / widths.experts if widths.experts else 1
        self.layer_bytes = layout.shape.layer_bytes(tp)
        self.written_bytes = layout.rank_bytes_per_token
        self.state_bytes = 2 * layout.rank_fixed_bytes

    def _set_rates(self, tflops, mfu, decode_mfu, gb_per_s, tp):
        """Nanoseconds of an operation and a byte."""
        peak = 1e3 * tp * at_least("tflops", tflops, 1e-9)
        self.prefill_flop = 1 / (peak * at_least("mfu", mfu, 1e-9))
        self.decode_flop = 1 / (peak * at_least("decode_mfu", decode_mfu, 1e-9))
        self.byte = 1 / at_least("hbm_gb_per_s · bandwidth_efficiency", gb_per_s, 1e-9)

    cdef double exact_ns(self, const Step* step) except? -1 nogil:
        cdef double flops = self.token_flops * step.new_tokens
        cdef double computed = step.new_tokens + step.decodes
        cdef double context = step.decode_context, near, requests = step.decodes
        cdef double decodes = step.decodes, seen, new, before
        cdef int32_t at
        near = smaller(context, decodes * self.window)
        cdef double decode_flops = decodes * (self.token_flops + self.head_flops) \
            + self.decode_pair_flops * (self.full * context + self.windowed * near)
        for at in range(step.prefills):
            new, before = step.chunks[at].new, step.chunks[at].context
            if new <= 0:
                continue
            requests += 1
            seen = before + 0.5 * new
            flops += self.head_flops + self.expand_flops * (self.full + self.windowed) * before \
                + self.pair_flops * (new * (self.full * seen + self.windowed * smaller(seen, self.window)))
            context += before
            near += smaller(before, self.window)
        cdef double bytes_moved = self.common_bytes + self.experts_bytes * (1 - power(self.missed, <int64_t>computed)) \
            + self.layer_bytes * (self.full * context + self.windowed * near) \
            + self.written_bytes * computed + self.state_bytes * requests
        cdef double compute_ns = self.prefill_flop * flops + self.decode_flop * decode_flops
        cdef double memory_ns = self.byte * bytes_moved
        return (compute_ns if compute_ns > memory_ns else memory_ns) + self.constant


cdef inline double smaller(double a, double b) noexcept nogil:
    return a if a < b else b


cdef inline double power(double base, int64_t exponent) noexcept nogil:
    """``base`` to a whole power, by multiplication alone."""
    cdef double result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
