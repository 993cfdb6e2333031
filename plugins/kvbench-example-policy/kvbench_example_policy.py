"""two-touch: a block that was used again since it was stored outlives those that were not.

LRU lets one long prompt that nobody repeats wash out everything. Here such a prompt can only
displace blocks that were not used again either: evicted are first the blocks never hit since
they were stored, then the others, each group by oldest use. The second group may fill ``keep``
of the tier; beyond that its oldest blocks go back to the first. (Known as segmented LRU:
Karedla, Love, Wherry, "Caching strategies to improve disk system performance", Computer 27(3),
1994.) Cost: O(1) a touched, stored or evicted block.
"""

from collections import OrderedDict
from itertools import chain

import kvbench
from kvbench.eviction import PythonPolicy


class TwoTouch(PythonPolicy):
    """``once`` and ``again`` hold slots, oldest use first."""

    def __init__(self, context, keep=0.4):
        super().__init__(context)
        self.room = int(context.capacity * keep)
        self.once = OrderedDict()
        self.again = OrderedDict()

    def insert(self, slots):
        once = self.once
        for slot in slots:
            once[slot] = None

    def touch(self, slots):
        once, again = self.once, self.again
        for slot in slots:
            if slot in again:
                again.move_to_end(slot)
            else:
                del once[slot]
                again[slot] = None
        while len(again) > self.room:
            slot, _ = again.popitem(last=False)
            once[slot] = None

    def remove(self, slots):
        once, again = self.once, self.again
        for slot in slots:
            if slot in once:
                del once[slot]
            else:
                del again[slot]

    def evict(self, n):
        refs, victims = self.refs, []
        for slot in chain(self.once, self.again):
            if refs[slot] == 1:
                victims.append(slot)
                if len(victims) == n:
                    break
        self.remove(victims)
        return victims


@kvbench.hookimpl
def kvbench_eviction_policies():
    yield kvbench.EvictionPolicySpec(
        "two-touch",
        TwoTouch,
        "evict blocks that were never used again first, by oldest use",
        params=(kvbench.Param("keep", float, 0.4, "share of the tier for blocks used again", minimum=0),),
        source="Karedla et al., Computer 27(3), 1994",
    )
