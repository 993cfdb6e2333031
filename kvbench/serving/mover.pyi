
from kvbench.serving.shipments import Shipments

class Mover(Shipments): ...
