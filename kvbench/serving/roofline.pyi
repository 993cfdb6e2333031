from kvbench.serving.compute import ComputeContext, FloatModel
from kvbench.serving.kvsize import KvLayout
from kvbench.serving.weights import Decoder

class Roofline(FloatModel):
    def __init__(
        self,
        context: ComputeContext,
        *,
        decoder: Decoder,
        layout: KvLayout,
        tflops: float,
        mfu: float,
        decode_mfu: float,
        bandwidth_gb_per_s: float,
        bandwidth_efficiency: float,
        weight_dtype: str | None,
        step_us: float,
        layer_us: float,
    ) -> None: ...
