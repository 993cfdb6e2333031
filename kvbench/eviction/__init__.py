"""Eviction policies: each orders the slots of one tier (compiled).

policy.pyx     the base class, and the one that Python policies derive from
slotlist.pxd   a linked list through slots, for policies that keep an order
lru.pyx …      one policy a file
"""

from kvbench.eviction.policy import EvictionPolicy, PolicyContext, PythonPolicy

__all__ = ["EvictionPolicy", "PolicyContext", "PythonPolicy"]
