"""What ships with kvbench, offered through the same hooks as anybody's parts: the eviction policies.

The parts of tiers are listed in :mod:`kvbench.builtin_tiers`, token databases and hash algorithms in
:mod:`kvbench.builtin_tokens`, routers in :mod:`kvbench.builtin_routers`, compute models in
:mod:`kvbench.builtin_compute`, workloads in :mod:`kvbench.builtin_workloads`, all others in
:mod:`kvbench.builtin_others`. Factories are strings, so none of these modules imports anything of what it lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.builtin_compute import kvbench_compute_models
from kvbench.builtin_others import kvbench_commands, kvbench_executors, kvbench_trace_formats
from kvbench.builtin_routers import kvbench_router_policies
from kvbench.builtin_tiers import kvbench_admission_filters, kvbench_devices
from kvbench.builtin_tokens import kvbench_hash_algorithms, kvbench_token_databases
from kvbench.builtin_workloads import kvbench_workloads
from kvbench.hookspecs import hookimpl
from kvbench.specs import EvictionPolicySpec, Param

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "kvbench_admission_filters",
    "kvbench_commands",
    "kvbench_compute_models",
    "kvbench_devices",
    "kvbench_eviction_policies",
    "kvbench_executors",
    "kvbench_hash_algorithms",
    "kvbench_router_policies",
    "kvbench_token_databases",
    "kvbench_trace_formats",
    "kvbench_workloads",
]


@hookimpl
def kvbench_eviction_policies() -> Iterator[EvictionPolicySpec]:
    yield EvictionPolicySpec(
        "2q",
        "kvbench.eviction.two_q:TwoQ",
        "keep for long what returns after it left the first queue",
        params=(
            Param("a1in", float, 0.25, "share of the first queue"),
            Param("a1out", float, 0.5, "keys remembered, in capacities", minimum=0),
        ),
        source="Johnson, Shasha, VLDB 1994; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "arc",
        "kvbench.eviction.arc:Arc",
        "balance blocks used once and used again by the keys that return",
        source="Megiddo, Modha, FAST 2003; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "belady",
        "kvbench.eviction.belady:Belady",
        "evict the block whose next use is farthest away; reads the trace twice",
        source="Belady, IBM Systems Journal 5(2), 1966",
        looks_ahead=True,
    )
    yield EvictionPolicySpec(
        "cacheus",
        "kvbench.eviction.cacheus:Cacheus",
        "LeCaR with scan-resistant LRU, churn-resistant LFU and a rate that adapts",
        source="Rodriguez et al., FAST 2021; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "car",
        "kvbench.eviction.car:Car",
        "ARC with two clocks: a hit sets a bit",
        params=(
            Param("edition", str, "paper", "whose ghost list B2", choices=("paper", "libcachesim")),
            Param("history", float, 4.0, "keys in B2 with edition=libcachesim, in capacities", minimum=1),
        ),
        source="Bansal, Modha, FAST 2004; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "clock",
        "kvbench.eviction.clock:Clock",
        "FIFO, but blocks used since get another chance",
        params=(
            Param("init_freq", int, 0, "chances of a block that was just stored", minimum=0),
            Param("bits", int, 1, "bits of the counter of uses, 1 to 8", minimum=1),
        ),
        source="Corbató, 1968; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "clock2q+",
        "kvbench.eviction.clock2q_plus:Clock2QPlus",
        "S3-FIFO that does not count uses right after the storing",
        params=(
            Param("small", float, 0.10, "share of the small queue"),
            Param("ghost", float, 0.90, "keys remembered, in capacities", minimum=0),
            Param("window", float, 0.5, "of the small queue, until uses count", minimum=0),
        ),
        source="libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "continuum",
        "kvbench.eviction.continuum:Continuum",
        "LRU that keeps the blocks of sessions that are about to return",
        params=(
            Param("ttl_s", float, 60.0, "seconds that they are kept after a request", minimum=0),
            Param("first", bool, True, "a session's first request counts as promising"),
        ),
        source="after arXiv 2511.02230",
        columns=("session_id", "arrival_ns"),
    )
    yield EvictionPolicySpec(
        "fifo", "kvbench.eviction.fifo:Fifo", "evict the block that was stored first", source="folklore"
    )
    yield EvictionPolicySpec(
        "gdsf",
        "kvbench.eviction.gdsf:Gdsf",
        "evict the lowest of age + uses, where the age rises with each victim",
        source="Cherkasova, HP Labs 1998; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "hyperbolic",
        "kvbench.eviction.hyperbolic:Hyperbolic",
        "evict the fewest uses per unit of age, out of a sample",
        params=(Param("samples", int, 64, "blocks to choose from", minimum=1),),
        source="Blankstein et al., USENIX ATC 2017",
    )
    yield EvictionPolicySpec(
        "kvbm-lineage",
        "kvbench.eviction.kvbm_lineage:KvbmLineage",
        "of the blocks without resident children, the oldest",
        params=(Param("order", str, "tick", "what makes one old", choices=("tick", "fifo")),),
        source="ai-dynamo/dynamo lib/kvbm-logical",
    )
    yield EvictionPolicySpec(
        "kvbm-multilru",
        "kvbench.eviction.kvbm_multilru:KvbmMultiLru",
        "four LRU lists by how often a block was asked for, the coldest first",
        params=(
            Param("warm", int, 3, "uses of a block of the second list", minimum=1),
            Param("hot", int, 8, "uses of a block of the third list", minimum=2),
            Param("hottest", int, 15, "uses of a block of the fourth list, at most 15", minimum=3),
            Param("sketch", int, 1 << 21, "keys that the frequency sketch is made for", minimum=4),
        ),
        source="ai-dynamo/dynamo lib/kvbm-logical",
    )
    yield EvictionPolicySpec(
        "leaf-lfu",
        "kvbench.eviction.leaf_lfu:LeafLfu",
        "of the blocks without resident children, the fewest uses",
        source="radix-tree caches; SGLang evict_policy.py",
    )
    yield EvictionPolicySpec(
        "leaf-lru",
        "kvbench.eviction.leaf_lru:LeafLru",
        "of the blocks without resident children, the oldest last use",
        source="radix-tree caches; SGLang evict_policy.py",
    )
    yield EvictionPolicySpec(
        "keep", "kvbench.eviction.keep:Keep", "never evict: a full tier stores no more", source="OPAL (OP-31, OP-33)"
    )
    yield EvictionPolicySpec(
        "lecar",
        "kvbench.eviction.lecar:LeCar",
        "draw between LRU and LFU, and believe less who lets go what returns",
        params=(
            Param("rate", float, 0.45, "learning rate", minimum=0),
            Param("lru", float, 0.5, "weight of LRU at first", minimum=0),
        ),
        source="Vietri et al., HotStorage 2018; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "length-aware",
        "kvbench.eviction.length_aware:LengthAware",
        "the fewest uses, then the position in the request",
        params=(Param("out", str, "high", "which position goes first", choices=("high", "low")),),
        source="Mooncake, arXiv 2407.00079, table 1",
    )
    yield EvictionPolicySpec(
        "lfu",
        "kvbench.eviction.lfu:Lfu",
        "evict the block with the fewest uses since it was stored",
        source="folklore; Shah et al., 2010",
    )
    yield EvictionPolicySpec(
        "lfu-da",
        "kvbench.eviction.lfu_da:make_lfu_da",
        "LFU with dynamic aging",
        params=(Param("edition", str, "libcachesim", "whose rule", choices=("libcachesim", "textbook")),),
        source="Arlitt et al., 2000; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "lfu-perfect",
        "kvbench.eviction.lfu_perfect:LfuPerfect",
        "the block used least often, counted beyond its evictions",
        params=(Param("ghosts", float, 10.0, "evicted keys remembered for each block of capacity", minimum=0),),
        source="folklore",
    )
    yield EvictionPolicySpec(
        "lhd",
        "kvbench.eviction.lhd:Lhd",
        "evict the fewest hits to be expected for room and time, out of a sample",
        source="Beckmann et al., NSDI 2018; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "lirs",
        "kvbench.eviction.lirs:Lirs",
        "keep the blocks whose last two uses were close together",
        params=(Param("hir", float, 0.01, "share of the blocks with long gaps"),),
        source="Jiang, Zhang, SIGMETRICS 2002; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "lmcache-mp-arc",
        "kvbench.eviction.lmcache_mp_arc:LmcacheMpArc",
        "ARC as LMCache's multi-process server evicts",
        source="LMCache 0.5.6 v1/distributed/eviction_policy",
    )
    yield EvictionPolicySpec(
        "lru",
        "kvbench.eviction.lru:Lru",
        "evict the block whose last use is oldest",
        source="Mattson et al., IBM Systems Journal 9(2), 1970",
    )
    yield EvictionPolicySpec(
        "lru-k",
        "kvbench.eviction.lru_k:LruK",
        "evict the block whose k-th last use is oldest",
        params=(Param("k", int, 2, "which use counts, 1 to 64", minimum=1),),
        source="O'Neil et al., SIGMOD 1993; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "marconi",
        "kvbench.eviction.marconi:Marconi",
        "of the blocks without resident children, the lowest recency + alpha × FLOPs saved per byte",
        params=(
            Param("alpha", float, 1.0, "turnovers of the tier that one unit of FLOPs is worth", minimum=0),
            Param("hidden", int, 4096, "width of the model", minimum=1),
            Param("ffn", int, 14336, "width of its feed-forward part", minimum=0),
        ),
        source="after arXiv 2411.19379",
    )
    yield EvictionPolicySpec(
        "mq",
        "kvbench.eviction.mq:Mq",
        "LRU queues by number of uses, remembered after eviction; what rests sinks",
        params=(
            Param("queues", int, 8, "number of queues", minimum=1),
            Param("lifetime", int, 10_000, "accesses without a use after which a block sinks", minimum=0),
            Param("qout", float, 4.0, "keys remembered, in capacities", minimum=0),
        ),
        source="Zhou, Philbin, Li, USENIX ATC 2001; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "mru",
        "kvbench.eviction.mru:Mru",
        "evict the block whose last use is most recent",
        source="folklore",
    )
    yield EvictionPolicySpec(
        "qdlp",
        "kvbench.eviction.qdlp:Qdlp",
        "a small FIFO in front of a clock, to let go early of what is not used",
        params=(
            Param("small", float, 0.10, "share of the small queue"),
            Param("ghost", float, 0.90, "keys remembered, in capacities", minimum=0),
        ),
        source="Yang et al., HotOS 2023; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "random", "kvbench.eviction.random:Random", "evict any block, each with the same chance", source="folklore"
    )
    yield EvictionPolicySpec(
        "s3-fifo",
        "kvbench.eviction.s3_fifo:S3Fifo",
        "let go early of what is not used in a small first queue",
        params=(
            Param("small", float, 0.10, "share of the small queue"),
            Param("ghost", float, 0.90, "keys remembered, in capacities", minimum=0),
            Param("threshold", int, 2, "uses that lead from the small queue into the main one", minimum=1),
            Param("edition", str, "current", "with or without the warm-up rule", choices=("current", "v0")),
        ),
        source="Yang et al., SOSP 2023; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "sglang",
        "kvbench.eviction.sglang:Sglang",
        "of the blocks without resident children, by a strategy of SGLang",
        params=(
            Param("strategy", str, "lru", "what ranks them", choices=("lru", "lfu", "fifo", "mru", "filo", "slru")),
        ),
        source="SGLang evict_policy.py",
    )
    yield EvictionPolicySpec(
        "sglang-priority",
        "kvbench.eviction.sglang:sglang_priority",
        "of the blocks without resident children, the lowest priority, then the oldest last use",
        source="SGLang evict_policy.py",
        columns=("priority",),
    )
    yield EvictionPolicySpec(
        "sieve",
        "kvbench.eviction.sieve:Sieve",
        "FIFO with a hand that passes over blocks used since it last came by",
        source="Zhang et al., NSDI 2024",
    )
    yield EvictionPolicySpec(
        "slru",
        "kvbench.eviction.slru:Slru",
        "LRU in segments, which a block climbs use by use",
        params=(Param("segments", int, 4, "number of segments", minimum=1),),
        source="Karedla et al., IEEE Computer 27(3), 1994; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "t-lru",
        "kvbench.eviction.t_lru:TLru",
        "first what the next turn can afford to lose, then the oldest last use",
        params=(
            Param("threshold", int, 1024, "tokens that the next turn may compute within its latency goal", minimum=0),
            Param("next_turn", int, 256, "new tokens that the next turn is expected to bring", minimum=0),
        ),
        source="arXiv 2510.15152",
        columns=("input_tokens",),
    )
    yield EvictionPolicySpec(
        "tenant-lru",
        "kvbench.eviction.tenant_lru:TenantLru",
        "an LRU for each tenant, and quotas that lend what is unused",
        params=(
            Param("share", float, 0.0, "part of the tier of each tenant; 0: even parts", minimum=0),
            Param("quotas", str, "", "blocks of each tenant by its number, as 10,20; or in a tier: quotas by name"),
        ),
        source="after LMCache 0.5.6 IsolatedLRU",
        columns=("tenant",),
    )
    yield EvictionPolicySpec(
        "trtllm",
        "kvbench.eviction.trtllm:TrtLlm",
        "of the blocks without resident children, the lowest priority, then the oldest last use",
        params=(Param("retention_s", float, 0.0, "seconds a priority lasts; 0: for good", minimum=0),),
        source="TensorRT-LLM evictionPolicy.cpp",
        columns=("priority", "arrival_ns"),
    )
    yield EvictionPolicySpec(
        "ttl",
        "kvbench.eviction.ttl:Ttl",
        "LRU, but blocks expire",
        params=(
            Param("seconds", float, 300.0, "how long a block lives", minimum=0),
            Param("mode", str, "fixed", "since it was stored, or last used", choices=("fixed", "sliding")),
        ),
        source="Redis; libCacheSim 0.3.5",
        columns=("arrival_ns",),
    )
    yield EvictionPolicySpec(
        "vllm-offload-arc",
        "kvbench.eviction.vllm_offload_arc:VllmOffloadArc",
        "ARC as vLLM offloads to the CPU",
        source="vLLM 0.33 v1/kv_offload/cpu",
    )
    yield EvictionPolicySpec(
        "vllm-offload-lru",
        "kvbench.eviction.vllm_offload_lru:VllmOffloadLru",
        "the tail of the request that is longest ago",
        source="vLLM 0.33 v1/kv_offload/cpu",
    )
    yield EvictionPolicySpec(
        "w-tinylfu",
        "kvbench.eviction.w_tinylfu:WTinyLfu",
        "admit to the main part what was asked more often than its victim",
        params=(
            Param("window", float, 0.01, "share of the window"),
            Param("sketch", str, "libcachesim", "how uses are counted", choices=("libcachesim", "textbook")),
        ),
        source="Einziger, Friedman, Manes, ACM TOS 13(4), 2017; libCacheSim 0.3.5",
    )
    yield EvictionPolicySpec(
        "workload-aware",
        "kvbench.eviction.workload_aware:WorkloadAware",
        "the least likely to be used again, by a fit of reuse times for each turn",
        source="after arXiv 2506.02634 (ATC'25)",
        columns=("arrival_ns", "turn"),
    )
    yield EvictionPolicySpec(
        "workload-aware-type",
        "kvbench.eviction.workload_aware:WorkloadAware",
        "the least likely to be used again, by a fit of reuse times for each type and turn",
        source="after arXiv 2506.02634 (ATC'25)",
        columns=("arrival_ns", "turn", "type"),
    )
