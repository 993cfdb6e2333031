"""The router policies that ship with kvbench; :mod:`kvbench.builtin` offers them.

A preset is a policy under the settings of one system and version: an entry of
``kvbench/routers/presets.toml``, offered as a policy of its own with other defaults.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kvbench.hookspecs import hookimpl
from kvbench.specs import Param, RouterPolicySpec

if TYPE_CHECKING:
    from collections.abc import Iterator

TIE_RULES = ("random", "first", "turns", "least-requests", "least-assigned")
"""``random``: an even draw. ``first``: the lowest number. ``turns``: the next one after the worker that won
the last tie. ``least-requests``: the fewest in flight, then an even draw. ``least-assigned``: the fewest
tokens assigned since the start, then an even draw."""

SIGNALS = (
    *("requests", "tokens", "blocks", "prefilling", "prefill_blocks"),
    *("waiting", "running", "used_blocks", "kv_usage"),
    *("assigned_requests", "assigned_tokens", "assigned_blocks"),
)
"""Names of the figures of :class:`kvbench.routers.terms.Load`, for parameters that choose one."""

TIES = Param("ties", str, "random", "who of equal workers", choices=TIE_RULES)
SCORERS = {
    "prefix": "overlap over the blocks of the prompt, as an approximate index guesses it",
    "precise_prefix": "overlap by tier, between the least and the most of all workers",
    "queue": "requests that wait, few are good",
    "running": "requests that run, few are good",
    "kv_utilization": "free share of the KV memory",
    "load_aware": "half of what is left of the queue's threshold",
    "active": "requests in flight by the router's own count, few are good",
    "token_load": "tokens in flight, few are good",
    "no_hit": "cold requests go where one was sent longest ago",
}
SGLANG_SOURCE = "sgl-project/sglang sgl-model-gateway; sglang_router 0.3.2"


def weight(name: str, default: float, help: str) -> Param:
    """A parameter that multiplies something."""
    return Param(name, float, default, help, minimum=0)


def signal(default: str = "requests") -> Param:
    """A parameter that chooses a figure of load."""
    return Param("signal", str, default, "which load", choices=SIGNALS)


def tier_weights(gpu: float, cpu: float, other: float) -> tuple[Param, ...]:
    """Parameters for what a block is worth, by the fastest tier that holds it."""
    return (
        weight("gpu", gpu, "of a block in the fastest tier"),
        weight("cpu", cpu, "of one in the tier below"),
        weight("other", other, "of one in any other tier"),
    )


@hookimpl
def kvbench_router_policies() -> Iterator[RouterPolicySpec]:
    known = {spec.name: spec for spec in policies()}
    yield from known.values()
    for name, preset in router_presets().items():
        spec = known[preset["policy"]]
        params = tuple(replace(param, default=preset["params"].get(param.name, param.default)) for param in spec.params)
        about = {key: preset.get(key, "") for key in ("help", "source", "index")}
        yield replace(spec, name=name, params=params, **about)


def router_presets() -> dict[str, dict[str, Any]]:
    """By name: the ``policy``, the ``params`` that it pins, ``index``, ``help`` and ``source``."""
    return tomllib.loads((files("kvbench") / "routers" / "presets.toml").read_text("utf-8"))


def policies() -> Iterator[RouterPolicySpec]:
    """All but the presets."""
    yield from _plain()
    yield from _hashing()
    yield from _prefix()
    for source, of_system in (
        ("ai-dynamo/dynamo lib/kv-router, 1.4", _dynamo),
        (SGLANG_SOURCE, _sglang),
        ("llm-d/llm-d-inference-scheduler, 2026-05", _llmd),
        ("vllm-project/aibrix, 2026-08", _aibrix),
        ("vllm-project/production-stack, 2026-08", _production_stack),
    ):
        for spec in of_system():
            yield replace(spec, source=spec.source or source)


def _plain() -> Iterator[RouterPolicySpec]:
    yield RouterPolicySpec(
        "random", "kvbench.routing.simple:Random", "an even draw for each request", source="folklore"
    )
    yield RouterPolicySpec(
        "round-robin", "kvbench.routing.simple:RoundRobin", "one worker after the other", source="folklore"
    )
    yield RouterPolicySpec(
        "least-loaded",
        "kvbench.routers.loads:LeastLoaded",
        "the worker with the least load",
        params=(signal(), TIES),
        source="folklore",
    )
    yield RouterPolicySpec(
        "power-of-two",
        "kvbench.routers.loads:PowerOfTwo",
        "the less loaded of two random workers",
        params=(signal(),),
        source="Mitzenmacher, TPDS 2001; AIBrix",
    )
    yield RouterPolicySpec(
        "always-busiest",
        "kvbench.routers.loads:AlwaysBusiest",
        "the worker with the most requests in flight: the worst there is",
        params=(TIES,),
        source="BLIS",
    )
    yield RouterPolicySpec(
        "vllm-dp",
        "kvbench.routers.loads:VllmDataParallel",
        "fewest requests, those that wait counted four times",
        params=(weight("waiting_weight", 4.0, "of a request that waits"), TIES),
        source="vLLM's data-parallel balancer, 0.33",
    )


def _hashing() -> Iterator[RouterPolicySpec]:
    replicas = Param("replicas", int, 256, "places of a worker on the ring", minimum=1, maximum=1e5)
    bounds = Param(
        "load_factor", float, 1.25, "how far above the mean a worker's load may be: so many times", minimum=1
    )
    yield RouterPolicySpec(
        "session-sticky",
        "kvbench.routers.rings:SessionSticky",
        "a session stays with its first worker, the least loaded one then",
        params=(Param("ttl_s", float, 0.0, "forget a session silent for so long; 0: never", minimum=0), TIES),
        source="Dynamo and AIBrix, session affinity",
        columns=("session_id",),
    )
    yield RouterPolicySpec(
        "consistent-hash",
        "kvbench.routers.rings:BoundedHash",
        "the start of the prompt, or the session, on a ring of workers with bounded loads",
        params=(
            Param(
                "by",
                str,
                "prefix",
                "what is hashed",
                choices=("prefix", "session"),
                needs=(("session", "session_id"),),
            ),
            Param("prefix_tokens", int, 256, "tokens at the start, in whole blocks", minimum=1),
            bounds,
            replicas,
        ),
        source="Mirrokni et al., SODA 2018",
        uses=("session_id",),
    )
    yield RouterPolicySpec(
        "kubeai-prefix-hash",
        "kvbench.routers.rings:BoundedHash",
        "consistent-hash as KubeAI has it: the first 100 characters, or block",
        params=(Param("prefix_tokens", int, 25, "tokens at the start, in whole blocks", minimum=1), bounds, replicas),
        source="substratusai/kubeai balance_chwbl.go",
    )
    yield RouterPolicySpec(
        "sglang-prefix-hash",
        "kvbench.routers.rings:SglangPrefixHash",
        "the start of the prompt on a ring; the least loaded worker where the owner has too much",
        params=(Param("prefix_tokens", int, 256, "tokens at the start, in whole blocks", minimum=1), bounds, replicas),
        source=SGLANG_SOURCE,
    )


def _prefix() -> Iterator[RouterPolicySpec]:
    yield RouterPolicySpec(
        "max-prefix",
        "kvbench.routers.prefix:make_max_prefix",
        "the worker that holds the longest prefix of the request",
        params=(
            Param(
                "fallback",
                str,
                "random",
                "who serves a request that nobody holds",
                choices=("random", "round-robin", "ties"),
            ),
            *tier_weights(1.0, 1.0, 1.0),
            TIES,
        ),
        source="kvbench semantics 8.2",
    )
    yield RouterPolicySpec(
        "missing-plus-load",
        "kvbench.routers.prefix:MissingPlusLoad",
        "fewest missing blocks, plus the tokens sent there to be computed",
        params=(Param("per_block", float, 5_120.0, "so many tokens count as a block", minimum=1e-9), TIES),
        source="kvbench",
    )
    yield RouterPolicySpec(
        "mooncake-ttft",
        "kvbench.routers.prefix:MooncakeTtft",
        "shortest time to the first token: queued prefills and what is missing",
        params=(
            weight("balancing_threshold", 0.0, "fetch a prefix so many times longer than the own; 0: never"),
            Param("transfer_ratio", float, 10.0, "tokens moved while one is prefilled", minimum=1e-9),
            TIES,
        ),
        source="Qin et al., Mooncake, FAST 2025",
    )


def _dynamo() -> Iterator[RouterPolicySpec]:
    temperature = weight("temperature", 0.0, "0: the lowest cost; more: a draw that favours low costs")
    credits = (
        weight("overlap_credit", 1.0, "of a block in the fastest tier"),
        weight("decay", 0.0, "less credit for workers with more to prefill than others"),
        weight("host_weight", 0.75, "of a block in the tier below"),
        weight("disk_weight", 0.25, "of a block in any other tier"),
    )
    yield RouterPolicySpec(
        "dynamo-kv",
        "kvbench.routers.dynamo:DynamoKv",
        "lowest cost: blocks to prefill, less credit for overlap, and blocks in use",
        params=(
            *credits,
            weight("prefill_scale", 1.0, "of the prefill term"),
            weight("request_weight", 0.0, "blocks that an active request counts as"),
            temperature,
            Param("track_prefill", bool, True, "false: a pool that decodes"),
        ),
    )
    yield RouterPolicySpec(
        "dynamo-lmetric",
        "kvbench.routers.dynamo:DynamoLmetric",
        "lowest product of blocks to prefill and blocks in use",
        params=(*credits, temperature),
    )
    yield RouterPolicySpec(
        "dynamo-logit",
        "kvbench.routers.dynamo:DynamoLogit",
        "the cost that papers quote: weight · blocks to prefill + blocks in use",
        params=(weight("overlap_weight", 1.0, "of the blocks to prefill"), temperature),
        source="ai-dynamo/dynamo, 0.x",
    )


def _sglang() -> Iterator[RouterPolicySpec]:
    yield RouterPolicySpec(
        "sglang-cache-aware",
        "kvbench.routers.sglang:CacheAware",
        "the best match if it is a good one, the least loaded worker if not or where load is uneven",
        params=(
            Param("cache_threshold", float, 0.3, "share of the prompt that must match", minimum=0, maximum=1),
            weight("abs_threshold", 64.0, "a larger difference of load is uneven …"),
            weight("rel_threshold", 1.5, "… if the most is so many times the least"),
            Param("fallback", str, "least-load", "where the match is poor", choices=("least-load", "smallest-tree")),
            TIES,
        ),
    )
    yield RouterPolicySpec(
        "ray-prefix-aware",
        "kvbench.routers.sglang:RayPrefixAware",
        "the best match if it is a good one, else the smallest tree; two random workers where load is uneven",
        params=(
            weight("imbalance", 0.0, "a larger difference of load is uneven; 0: never"),
            Param("cache_threshold", float, 0.1, "share of the prompt that must match", minimum=0, maximum=1),
        ),
        source="ray-project/ray serve/routing_policies/prefix_aware",
    )


def _llmd() -> Iterator[RouterPolicySpec]:
    factory = "kvbench.routers.llmd:LlmdProfile"
    details = (
        *tier_weights(1.0, 0.8, 1.0),
        Param("queue_threshold", int, 128, "of load_aware", minimum=1),
        Param("token_queue", int, 4_194_304, "of token_load", minimum=1),
        TIES,
    )
    defaults = {"queue": 2.0, "kv_utilization": 2.0, "prefix": 3.0}
    yield RouterPolicySpec(
        "llmd",
        factory,
        "the highest sum of weighted scores",
        params=(*(weight(name, defaults.get(name, 0.0), help) for name, help in SCORERS.items()), *details),
    )
    for scorer, help in SCORERS.items():
        if scorer == "no_hit":
            continue
        own = {"precise_prefix": details[:3], "load_aware": details[3:4], "token_load": details[4:5]}.get(scorer, ())
        yield RouterPolicySpec(
            f"llmd-{scorer.replace('_', '-')}",
            factory,
            help,
            params=(weight(scorer, 1.0, "of the score"), *own, TIES),
        )


def _aibrix() -> Iterator[RouterPolicySpec]:
    yield RouterPolicySpec(
        "aibrix-prefix-cache",
        "kvbench.routers.aibrix:AibrixPrefixCache",
        "the best match that is not too busy",
        params=(
            Param("abs_threshold", int, 8, "where load differs by more, the least loaded ones alone", minimum=0),
            weight("deviations", 1.0, "standard deviations above the mean that are too busy"),
        ),
    )
    yield RouterPolicySpec(
        "aibrix-preble",
        "kvbench.routers.aibrix:AibrixPreble",
        "long matches where they match, others where a window's cost is lowest",
        params=(
            Param("match_threshold", float, 0.5, "share of the prompt", minimum=0, maximum=1),
            Param("window_s", float, 180.0, "seconds of the window", minimum=1e-9),
            Param("decode_tokens", int, 45, "expected of an answer", minimum=0),
            weight("slowness", 2.5, "of the GPU, an A6000 being 1"),
        ),
    )
    yield RouterPolicySpec(
        "aibrix-vtc",
        "kvbench.routers.aibrix:AibrixVtc",
        "users with many tokens go to workers with high numbers, all to idle ones",
        params=(
            weight("fairness", 1.0, "of the distance to the user's worker"),
            weight("utilization", 1.0, "of the worker's load"),
            Param("max_load", float, 100.0, "requests that count as full", minimum=1e-9),
            Param("min_tokens", float, 1_000.0, "least bucket of a user's tokens", minimum=1e-9),
            weight("max_tokens", 8_000.0, "most tokens of a user while there is none"),
            Param("window_s", float, 300.0, "seconds that tokens count", minimum=1e-9),
        ),
        uses=("tenant",),
    )
    for name, load, help in (
        ("least-request", "requests", "requests in flight"),
        ("least-gpu-cache", "kv_usage", "KV memory in use"),
        ("least-kv-cache", "used_blocks", "blocks in use"),
    ):
        yield RouterPolicySpec(
            f"aibrix-{name}",
            "kvbench.routers.loads:LeastLoaded",
            f"the fewest {help}" if load != "kv_usage" else f"the least {help}",
            params=(Param("signal", str, load, "which load", choices=(load,)), TIES),
        )
    yield RouterPolicySpec(
        "aibrix-throughput",
        "kvbench.routers.loads:Throughput",
        "the worker with the fewest tokens a request",
        params=(TIES,),
    )


def _production_stack() -> Iterator[RouterPolicySpec]:
    replicas = Param("replicas", int, 100, "places of a worker on the ring", minimum=1, maximum=1e5)
    yield RouterPolicySpec(
        "pstack-session",
        "kvbench.routers.rings:SessionRing",
        "the session on a ring of workers",
        params=(replicas,),
        columns=("session_id",),
    )
    yield RouterPolicySpec(
        "pstack-kvaware",
        "kvbench.routers.pstack:KvAware",
        "the longest match if it leaves few tokens, else the session's worker or the least loaded one",
        params=(Param("threshold", int, 2_000, "tokens that may be missing", minimum=0), replicas),
        uses=("session_id",),
    )
    yield RouterPolicySpec(
        "pstack-prefixaware",
        "kvbench.routers.pstack:PrefixAware",
        "an even draw among the longest matches",
        params=(TIES,),
    )
    yield RouterPolicySpec(
        "pstack-loadaware",
        "kvbench.routers.pstack:LoadAware",
        "share of the prompt that matches, less what load is above the mean",
        params=(weight("beta", 1.0, "of the load"), signal(), TIES),
        source="vllm-project/production-stack PR #1035",
    )
