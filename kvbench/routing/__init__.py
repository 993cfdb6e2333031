"""Who serves a request: the KVBM index and the routers in front of the workers (compiled).

holders.pyx      who holds which key, from events (copycounts.pyx: how often)
index.pyx        how much of a request each worker holds
feed.pyx         numbered events: doubled, late, missing
channel.pyx      the way of events to an index, which takes time and may lose some
predictor.pyx    what a router believes of its own decisions
view.pyx         one router with its index
load.pyx         what a router knows of the workers' load
ledger.pyx       the requests in flight, and who hears of them when, in order replay
clockledger.pyx  the same as timed replay tells it
policy.pyx       the base class, and the one that Python routers derive from
dispatcher.pyx   the routers of a cluster, each with its own view
simple.pyx       round-robin, random
max_prefix.pyx   longest prefix
"""

from kvbench.routing.channel import EventChannel
from kvbench.routing.dispatcher import Dispatcher
from kvbench.routing.feed import EventFeed
from kvbench.routing.index import KvbmIndex
from kvbench.routing.load import LoadView
from kvbench.routing.policy import PythonRouter, RandomStream, RouterContext, RouteRequest, RouterPolicy
from kvbench.routing.predictor import MirrorPredictor, TimedPredictor
from kvbench.routing.view import RouterView

__all__ = [
    "Dispatcher",
    "EventChannel",
    "EventFeed",
    "KvbmIndex",
    "LoadView",
    "MirrorPredictor",
    "PythonRouter",
    "RandomStream",
    "RouteRequest",
    "RouterContext",
    "RouterPolicy",
    "RouterView",
    "TimedPredictor",
]
