from typing import Self

from kvbench.routing.policy import RouterContext, RouterPolicy

class MaxPrefix(RouterPolicy):
    def __new__(cls, context: RouterContext, *, fallback: str = "random") -> Self: ...
