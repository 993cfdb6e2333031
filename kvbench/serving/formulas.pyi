from kvbench.serving.compute import ComputeContext, FloatModel, MixedModel

class Fixed(MixedModel):
    def __init__(
        self,
        context: ComputeContext,
        prefill_ms_per_token: float,
        decode_ms: float,
        prompt_ms: float = 0.0,
        mix: str = "sum",
    ) -> None: ...

class Linear(Fixed):
    def __init__(
        self,
        context: ComputeContext,
        prefill_ms_per_token: float,
        decode_ms: float,
        prompt_ms: float,
        load_factor: float,
        load_requests: int,
        mix: str,
    ) -> None: ...

class Poly(MixedModel):
    def __init__(
        self,
        context: ComputeContext,
        prefill_ms: float,
        prefill_ms_per_token: float,
        prefill_ms_per_token_squared: float,
        decode_ms: float,
        decode_ms_at_load: float,
        decode_ms_at_load_squared: float,
        speedup_ratio: float,
        decode_speedup_ratio: float,
        mix: str,
    ) -> None: ...

class Power(MixedModel):
    def __init__(
        self,
        context: ComputeContext,
        prefill_ms_per_token_1_5: float,
        prompt_ms: float,
        cached_ms_per_token: float,
        cached_ms: float,
        decode_ms: float,
        mix: str,
    ) -> None: ...

class Quadratic(MixedModel):
    def __init__(
        self,
        context: ComputeContext,
        prefill_us_per_token: float,
        decode_ms: float,
        prefill_ms: float,
        context_us_per_token: float,
        attention_ns_per_pair: float,
        decode_us_per_request: float,
        decode_ns_per_context_token: float,
        mix: str,
    ) -> None: ...

class Preble(FloatModel):
    def __init__(self, context: ComputeContext, slowness: float) -> None: ...
