"""Where blocks live and what happened to them (compiled).

table.pyx    key → slot: a hash table, or an array where ids are dense
slots.pyx    the slots of a tier: free, taken, pinned, counted
tier.pyx     one request at a tier: lookup, room, sweep
seen.pyx     every key ever asked for: first use or eviction?
events.pyx   every change of residency, in order
"""

from kvbench.cache.events import EventLog
from kvbench.cache.seen import DenseSeen, ExactSeen, Seen, make_seen
from kvbench.cache.tier import ORDERS, Tier

__all__ = ["ORDERS", "DenseSeen", "EventLog", "ExactSeen", "Seen", "Tier", "make_seen"]
