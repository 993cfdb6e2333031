"""The hooks of the package: plain Python, because pluggy takes no compiled functions.

The factory is named by a string, so that listing plugins does not load the extension module.
"""

import kvbench


@kvbench.hookimpl
def kvbench_eviction_policies():
    yield kvbench.EvictionPolicySpec(
        "never-hit-first",
        "kvbench_example_cython.policy:NeverHitFirst",
        "evict blocks that were never used again first, by age",
        source="folklore",
    )
