"""Where blocks live and what happened to them (compiled).

table.pyx    key → slot: a hash table, or an array where ids are dense
slots.pyx    the slots of a tier: free, taken, pinned, counted
victims.pyx  what its policy gives up, checked
tier.pyx     one request at a tier: lookup, room, sweep
seen.pyx     every key ever asked for: first use or eviction?
events.pyx   every change of residency, in order
copies.pyx   several copies of one block in a tier
stacked.pyx  a tier in a stack: given to from above and below
frame.pyx    a stack of tiers: its memory,
lookup.pyx   one request looked up in all of them,
plan.pyx     which of them is to store what,
stack.pyx    and the request stored
admission.pyx  which blocks may enter a tier
fold.py      the state that an event log describes
"""

from kvbench.cache.admission import AdmissionContext, AdmissionFilter, PythonAdmission
from kvbench.cache.events import EventLog
from kvbench.cache.seen import DenseSeen, ExactSeen, Seen, make_seen
from kvbench.cache.stack import TierStack
from kvbench.cache.stacked import TIER_COUNTS, StackedTier
from kvbench.cache.tier import ORDERS, Tier

__all__ = [
    "ORDERS",
    "TIER_COUNTS",
    "AdmissionContext",
    "AdmissionFilter",
    "DenseSeen",
    "EventLog",
    "ExactSeen",
    "PythonAdmission",
    "Seen",
    "StackedTier",
    "Tier",
    "TierStack",
    "make_seen",
]
