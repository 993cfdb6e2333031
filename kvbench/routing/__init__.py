"""Who serves a request: the KVBM index and the routers in front of the workers (compiled).

index.pyx        which worker holds which key, from events
load.pyx         what routers know of the workers' load
policy.pyx       the base class, and the one that Python routers derive from
dispatcher.pyx   the routers of a cluster, each with its own view
simple.pyx       round-robin, random
max_prefix.pyx   longest prefix
"""

from kvbench.routing.dispatcher import Dispatcher
from kvbench.routing.index import KvbmIndex
from kvbench.routing.load import Lag, LoadView
from kvbench.routing.policy import PythonRouter, RandomStream, RouterContext, RouteRequest, RouterPolicy

__all__ = [
    "Dispatcher",
    "KvbmIndex",
    "Lag",
    "LoadView",
    "PythonRouter",
    "RandomStream",
    "RouteRequest",
    "RouterContext",
    "RouterPolicy",
]
