
from kvbench.serving.holdings import Holdings

class Shipments(Holdings): ...
