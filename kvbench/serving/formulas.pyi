from kvbench.serving.compute import ComputeContext, MixedModel

class Fixed(MixedModel):
    def __init__(
        self,
        context: ComputeContext,
        prefill_ms_per_token: float,
        decode_ms: float,
        prompt_ms: float = 0.0,
        mix: str = "sum",
    ) -> None: ...
