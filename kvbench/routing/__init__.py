"""Who serves a request: the KVBM index and the router policies (compiled).

index.pyx        which worker holds which key, from events
policy.pyx       the base class, and the one that Python routers derive from
simple.pyx       round-robin, random
max_prefix.pyx   longest prefix
"""

from kvbench.routing.index import KvbmIndex
from kvbench.routing.policy import PythonRouter, RouterContext, RouterPolicy

__all__ = ["KvbmIndex", "PythonRouter", "RouterContext", "RouterPolicy"]
