"""Compute models that are formulas."""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t

from kvbench.serving.compute cimport Chunk, FloatModel, MixedModel, Step, prompts_begun

from kvbench.errors import ConfigError
from kvbench.serving.quantities import at_least, in_ns


cdef class Fixed(MixedModel):
    """Each prompt token takes the same time, and so does each step with decodes.

    prefill = ``prompt_ms`` of each prompt, once + ``prefill_ms_per_token`` · new tokens;
    decode = ``decode_ms``, whatever the batch.
    """

    cdef double prompt, token, decode

    def __init__(self, context, prefill_ms_per_token, decode_ms, prompt_ms=0.0, mix="sum"):
        self.token = in_ns("prefill_ms_per_token", prefill_ms_per_token)
        self.decode = in_ns("decode_ms", decode_ms)
        self.prompt = in_ns("prompt_ms", prompt_ms)
        self.set_mix(mix)

    cdef double prefill_part_ns(self, const Step* step) except? -1 nogil:
        return self.token * step.new_tokens + self.prompt * prompts_begun(step)

    cdef double decode_part_ns(self, const Step* step) except? -1 nogil:
        return self.decode


cdef class Linear(Fixed):
    """As :class:`Fixed`, times a factor that grows from 1 for one running request to ``load_factor`` for
    ``load_requests`` and more.

    Source: llm-d-inference-sim, its calculator ``per-token`` and ``time-factor-under-load``.
    """

    cdef double steepness
    cdef int64_t most

    def __init__(self, context, prefill_ms_per_token, decode_ms, prompt_ms, load_factor, load_requests, mix):
        Fixed.__init__(self, context, prefill_ms_per_token, decode_ms, prompt_ms, mix)
        self.most = <int64_t>at_least("load_requests", load_requests, 2) - 1
        self.steepness = (at_least("load_factor", load_factor, 1) - 1) / self.most

    cdef double exact_ns(self, const Step* step) except? -1 nogil:
        cdef int64_t others = step.prefills + step.decodes - 1
        return MixedModel.exact_ns(self, step) * (1.0 + self.steepness * (others if others < self.most else self.most))


cdef class Poly(MixedModel):
    """Polynomials, as Dynamo's mocker has them.

    prefill = ``prefill_ms`` + ``prefill_ms_per_token`` · x + ``prefill_ms_per_token_squared`` · x² with x
    new tokens of the step; decode = ``decode_ms`` + ``decode_ms_at_load`` · u + ``decode_ms_at_load_squared``
    · u² with u the context of the decoding requests over the tokens that fit (0 where any number does, 1 at
    most). ``speedup_ratio`` divides both, ``decode_speedup_ratio`` the second, too.

    Raises ConfigError for coefficients with which more load decodes faster.

    Source: ai-dynamo AISimulate perf_model.rs, whose authors call it uncalibrated.
    """

    cdef double constant, token, squared, decode, load, load_squared, turn, top

    def __init__(self, context, prefill_ms, prefill_ms_per_token, prefill_ms_per_token_squared, decode_ms,
                 decode_ms_at_load, decode_ms_at_load_squared, speedup_ratio, decode_speedup_ratio, mix):
        prefill = at_least("speedup_ratio", speedup_ratio, 1e-9)
        decode = prefill * at_least("decode_speedup_ratio", decode_speedup_ratio, 1e-9)
        self.constant = in_ns("prefill_ms", prefill_ms) / prefill
        self.token = in_ns("prefill_ms_per_token", prefill_ms_per_token) / prefill
        self.squared = in_ns("prefill_ms_per_token_squared", prefill_ms_per_token_squared) / prefill
        self.decode = in_ns("decode_ms", decode_ms) / decode
        self.load = in_ns("decode_ms_at_load", decode_ms_at_load) / decode
        self.load_squared = in_ns("decode_ms_at_load_squared", decode_ms_at_load_squared, signed=True) / decode
        if self.load + 2 * self.load_squared < 0:
            raise ConfigError(
                f"decode_ms_at_load_squared = {decode_ms_at_load_squared:g} makes more load decode faster; it is at "
                f"least {-decode_ms_at_load / 2:g}, half of decode_ms_at_load with a minus"
            )
        if self.load_squared < 0:
            # A falling parabola is calculated from its highest point: in floating point, too, it then never falls.
            self.turn = -self.load / (2 * self.load_squared)
            self.top = self.decode - self.load_squared * self.turn * self.turn
        self.set_mix(mix)

    cdef double prefill_part_ns(self, const Step* step) except? -1 nogil:
        cdef double tokens = step.new_tokens
        return self.squared * tokens * tokens + self.token * tokens + self.constant

    cdef double decode_part_ns(self, const Step* step) except? -1 nogil:
        cdef double load = 0.0
        if step.capacity_tokens > 0:
            load = <double>step.decode_context / step.capacity_tokens
            if load > 1:
                load = 1
        if self.load_squared < 0:
            return self.top + self.load_squared * ((self.turn - load) * (self.turn - load))
        return self.decode + self.load * load + self.load_squared * load * load


cdef class Power(MixedModel):
    """A power of the prompt, and the reading of its cached part.

    prefill = ``prefill_ms_per_token_1_5`` · n^1.5 of each chunk of n new tokens + ``prompt_ms`` of each
    prompt, once + where a prefix was cached ``cached_ms_per_token`` · cached tokens + ``cached_ms``;
    decode = ``decode_ms``, of which the original says nothing. A prompt in chunks takes less than at once.

    Source: AIBrix conductor.
    """

    cdef double power, prompt, cached_token, cached, decode

    def __init__(self, context, prefill_ms_per_token_1_5, prompt_ms, cached_ms_per_token, cached_ms, decode_ms, mix):
        self.power = in_ns("prefill_ms_per_token_1_5", prefill_ms_per_token_1_5)
        self.prompt = in_ns("prompt_ms", prompt_ms)
        self.cached_token = in_ns("cached_ms_per_token", cached_ms_per_token)
        self.cached = in_ns("cached_ms", cached_ms)
        self.decode = in_ns("decode_ms", decode_ms)
        self.set_mix(mix)

    cdef double prefill_part_ns(self, const Step* step) except? -1 nogil:
        cdef double time_ns = self.prompt * prompts_begun(step)
        cdef double tokens
        cdef const Chunk* chunk
        cdef int32_t at
        for at in range(step.prefills):
            chunk = &step.chunks[at]
            if chunk.new == 0:
                continue
            tokens = chunk.new
            time_ns += self.power * tokens * sqrt(tokens)
            if chunk.cached > 0:
                time_ns += self.cached_token * chunk.cached + self.cached
        return time_ns

    cdef double decode_part_ns(self, const Step* step) except? -1 nogil:
        return self.decode


cdef class Quadratic(MixedModel):
    """Linear layers, attention, and what depends on the context alone; a form to fit.

    prefill = ``prefill_ms`` + Σ over the chunks (``prefill_us_per_token`` · new + ``context_us_per_token`` ·
    context + ``attention_ns_per_pair`` · new · (context + new / 2)); decode = ``decode_ms`` +
    ``decode_us_per_request`` · requests + ``decode_ns_per_context_token`` · tokens of their context.
    """

    cdef double constant, token, context, pair, decode, request, decode_context

    def __init__(self, context, prefill_us_per_token, decode_ms, prefill_ms, context_us_per_token,
                 attention_ns_per_pair, decode_us_per_request, decode_ns_per_context_token, mix):
        self.constant = in_ns("prefill_ms", prefill_ms)
        self.token = in_ns("prefill_us_per_token", prefill_us_per_token)
        self.context = in_ns("context_us_per_token", context_us_per_token)
        self.pair = in_ns("attention_ns_per_pair", attention_ns_per_pair)
        self.decode = in_ns("decode_ms", decode_ms)
        self.request = in_ns("decode_us_per_request", decode_us_per_request)
        self.decode_context = in_ns("decode_ns_per_context_token", decode_ns_per_context_token)
        self.set_mix(mix)

    cdef double prefill_part_ns(self, const Step* step) except? -1 nogil:
        cdef double time_ns = self.constant + self.token * step.new_tokens
        cdef double new, before
        cdef int32_t at
        for at in range(step.prefills):
            new, before = step.chunks[at].new, step.chunks[at].context
            if new > 0:
                time_ns += self.context * before + self.pair * (new * (before + 0.5 * new))
        return time_ns

    cdef double decode_part_ns(self, const Step* step) except? -1 nogil:
        return self.decode + self.request * step.decodes + self.decode_context * step.decode_context


cdef class Preble(FloatModel):
    """Mistral 7B on an A6000, as Preble fitted it, for the whole batch: prompt tokens and decodes.

    ms = (linear(n) + attention(context) + Σ long(chunk)) / 0.9 · ``slowness``, with n the tokens computed
    and context all tokens of the batch: linear = 0.10842571 · n + 4.209777 from 384 on, −118 + 1.25 · n −
    0.00256 · n² from 192 on, else 22; attention = 0.000186 · context + 0.159 beyond 1,024, else 0.32;
    long = −7.37 + 0.00386 · n + 0.00000216 · n² of chunks of 4,096 and more.

    Left out, since more tokens would be faster with them: the fall of the middle branch from 244 to 384
    tokens, where the highest value holds instead, and the halving of attention for batches whose requests
    have few tokens of their own.

    Source: Srivatsa et al., "Preble", ICLR 2025; AIBrix prefix_cache_preble.go.
    """

    cdef double scale

    def __init__(self, context, slowness):
        self.scale = 1e6 * at_least("slowness", slowness, 1e-9) / 0.9

    cdef double exact_ns(self, const Step* step) except? -1 nogil:
        cdef double tokens = step.new_tokens + step.decodes
        cdef double context = step.new_tokens + step.decode_context
        cdef double ms = 22.0, new
        cdef int32_t at
        if tokens >= 384:
            ms = 0.10842571 * tokens + 4.209777054806409
        elif tokens >= 192:
            new = tokens if tokens < 244 else 244
            ms = -118 + 1.25 * new - 2.56e-3 * new * new
        for at in range(step.prefills):
            new = step.chunks[at].new
            if new > 0:
                context += step.chunks[at].context
            if new >= 4096:
                ms += -7.37 + 3.86e-3 * new + 2.16e-6 * new * new
        ms += 1.86e-4 * context + 0.159 if context > 1024 else 0.32
        return self.scale * ms
