"""Where blocks live and what happened to them (compiled).

table.pyx    key → slot: a hash table, or an array where ids are dense
tier.pyx     a bounded set of blocks: lookup, room, sweep, pins, counts
seen.pyx     every key ever asked for: first use or eviction?
events.pyx   every change of residency, in order
"""

from kvbench.cache.events import EventLog
from kvbench.cache.seen import DenseSeen, ExactSeen, Seen, make_seen
from kvbench.cache.tier import ORDERS, Tier

__all__ = ["ORDERS", "DenseSeen", "EventLog", "ExactSeen", "Seen", "Tier", "make_seen"]
