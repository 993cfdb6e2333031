"""The synthetic workloads that ship with kvbench; :mod:`kvbench.builtin` offers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import Param, WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

IDENTITY = (
    Param("block_tokens", int, 64, "tokens of a block", minimum=1, maximum=2**32 - 1),
    Param("ids", str, "block", "what identifies a prompt", choices=("block", "token")),
)
OUTPUT_HELP = "mean tokens of an answer (lognormal)"
CATALOGUE = (
    Param("requests", int, 1000, "number of requests", minimum=1, maximum=1e8),
    Param("prompt_tokens", int, 4096, "tokens of every prompt", minimum=1, maximum=1e7),
    Param("output_tokens", float, 128.0, OUTPUT_HELP, minimum=1, maximum=1e6),
)
"""Of workloads that pick whole prompts."""


def _arrivals(rate: float, what: str) -> tuple[Param, ...]:
    return (
        Param("arrivals", str, "poisson", f"how {what} are spread: poisson, gamma, uniform, or trace:FILE"),
        Param(
            "rate",
            float,
            rate,
            f"{what} per second (trace:FILE has its own, unless this is given)",
            minimum=1e-6,
            maximum=1e9,
            optional=True,
        ),
        Param("cv", float, 1.0, "coefficient of variation of gamma gaps", minimum=0.01, maximum=100, optional=True),
    )


@hookimpl
def kvbench_workloads() -> Iterator[WorkloadSpec]:
    yield WorkloadSpec(
        "chat",
        "kvbench.trace.synth.chat:make_chat",
        "multi-turn chats that share system prompts",
        params=(
            Param("sessions", int, 200, "number of chats", minimum=1, maximum=1e7),
            Param("system_prompts", int, 4, "system prompts they share, popular by Zipf's law", minimum=1, maximum=1e4),
            Param("system_tokens", int, 1024, "tokens of a system prompt", minimum=0, maximum=1e7),
            Param("turns", float, 5.0, "mean turns of a chat (geometric)", minimum=1, maximum=1e4),
            Param("user_tokens", float, 120.0, "mean tokens of a question (lognormal)", minimum=1, maximum=1e6),
            Param("output_tokens", float, 250.0, "mean tokens of an answer (lognormal)", minimum=1, maximum=1e6),
            Param(
                "think_s", float, 20.0, "mean seconds between an answer and the next question", minimum=0, maximum=1e7
            ),
            *_arrivals(0.5, "chats started"),
            *IDENTITY,
        ),
        source="kvbench",
    )
    yield WorkloadSpec(
        "rag",
        "kvbench.trace.synth.rag:make_rag",
        "questions about documents, k of N each; with separator_tokens=2, split at segment,separator=32000 32001",
        params=(
            Param("requests", int, 500, "number of questions", minimum=1, maximum=1e8),
            Param("num_documents", int, 10, "documents there are, equally popular", minimum=1, maximum=1e7),
            Param("docs_per_request", int, 4, "different documents in a prompt", minimum=0, maximum=1e4),
            Param("document_tokens", int, 2048, "tokens of a document", minimum=1, maximum=1e7),
            Param("system_tokens", int, 1024, "tokens of the system prompt of all", minimum=0, maximum=1e7),
            Param("question_tokens", float, 60.0, "mean tokens of a question (lognormal)", minimum=1, maximum=1e6),
            Param("output_tokens", float, 128.0, "mean tokens of an answer (lognormal)", minimum=1, maximum=1e6),
            *_arrivals(1.0, "requests"),
            Param("order", str, "sorted", "of the documents in a prompt", choices=("sorted", "shuffled")),
            Param(
                "separator_tokens",
                int,
                0,
                "tokens between system prompt, documents and question, ids 32000, 32001, … (nowhere else)",
                minimum=0,
                maximum=1e4,
            ),
            *IDENTITY,
        ),
        source="RAG workload of IBM/opal-sim",
    )
    yield WorkloadSpec(
        "agent",
        "kvbench.trace.synth.agent:make_agent",
        "loops of model calls and tools, with sub-agents",
        params=(
            Param("sessions", int, 100, "number of agents", minimum=1, maximum=1e7),
            Param("system_prompts", int, 3, "kinds of agents, popular by Zipf's law", minimum=1, maximum=1e4),
            Param("system_tokens", int, 8000, "tokens of a system prompt with its tools", minimum=0, maximum=1e7),
            Param("task_tokens", float, 400.0, "mean tokens of the task (lognormal)", minimum=1, maximum=1e6),
            Param("steps", float, 12.0, "mean model calls of an agent (geometric)", minimum=1, maximum=1e4),
            Param("output_tokens", float, 200.0, OUTPUT_HELP, minimum=1, maximum=1e6),
            Param("tool_tokens", float, 600.0, "mean tokens of a tool's result (lognormal)", minimum=1, maximum=1e6),
            Param("tool_s", float, 2.0, "mean seconds of a tool (exponential)", minimum=0, maximum=1e7),
            Param("subagent_share", float, 0.1, "share of tool calls that start a sub-agent", minimum=0, maximum=1),
            Param("subagent_system_tokens", int, 4000, "tokens of sub-agents' system prompt", minimum=0, maximum=1e7),
            Param("subagent_steps", float, 5.0, "mean model calls of a sub-agent (geometric)", minimum=1, maximum=1e4),
            *_arrivals(0.1, "agents started"),
            *IDENTITY,
        ),
        source="kvbench",
    )
    yield WorkloadSpec(
        "docqa",
        "kvbench.trace.synth.docqa:make_docqa",
        "several questions about each of some long documents",
        params=(
            Param("num_documents", int, 20, "documents", minimum=1, maximum=1e7),
            Param("document_tokens", int, 10_000, "tokens of a document", minimum=1, maximum=1e7),
            Param("questions_per_document", int, 4, "questions about each", minimum=1, maximum=1e6),
            Param(
                "order",
                str,
                "tile",
                "of the documents: round after round, one after another, or shuffled",
                choices=("tile", "interleave", "random"),
            ),
            Param("system_tokens", int, 100, "tokens of the system prompt of all", minimum=0, maximum=1e7),
            Param("question_tokens", float, 40.0, "mean tokens of a question (lognormal)", minimum=1, maximum=1e6),
            Param("output_tokens", float, 100.0, OUTPUT_HELP, minimum=1, maximum=1e6),
            *_arrivals(1.0, "requests"),
            *IDENTITY,
        ),
        source="long-document question answering of LMCache's benchmarks",
    )
    yield WorkloadSpec(
        "tenants",
        "kvbench.trace.synth.tenants:make_tenants",
        "tenants with prompts of their own below one system prompt",
        params=(
            Param("requests", int, 1000, "number of requests", minimum=1, maximum=1e8),
            Param("tenants", int, 4, "tenants", minimum=1, maximum=1e6),
            Param("tenant_exponent", float, 1.0, "of Zipf's law for tenants; 0: all alike", minimum=0, maximum=10),
            Param("prompts", int, 20, "prompts of a tenant", minimum=1, maximum=1e6),
            Param("exponent", float, 1.0, "of Zipf's law for a tenant's prompts", minimum=0, maximum=10),
            Param("shared_tokens", int, 512, "tokens of the system prompt of all", minimum=0, maximum=1e7),
            Param("prompt_tokens", int, 2048, "tokens of a tenant's prompt", minimum=1, maximum=1e7),
            Param("question_tokens", float, 60.0, "mean tokens of a question (lognormal)", minimum=1, maximum=1e6),
            Param("output_tokens", float, 128.0, OUTPUT_HELP, minimum=1, maximum=1e6),
            *_arrivals(1.0, "requests"),
            *IDENTITY,
        ),
        source="kvbench",
    )
    yield from _catalogues()


def _catalogues() -> Iterator[WorkloadSpec]:
    """Workloads that pick whole prompts."""
    yield WorkloadSpec(
        "loop",
        "kvbench.trace.synth.picks:make_loop",
        "the same prompts in the same order, over and over: LRU hits nothing below the loop's size",
        params=(
            Param("prompts", int, 100, "prompts of the loop", minimum=1, maximum=1e7),
            *CATALOGUE,
            *_arrivals(1.0, "requests"),
            *IDENTITY,
        ),
        source="kvbench",
    )
    yield WorkloadSpec(
        "scan",
        "kvbench.trace.synth.picks:make_scan",
        "hot prompts among others that are asked for once",
        params=(
            Param("prompts", int, 20, "hot prompts, equally popular", minimum=1, maximum=1e7),
            Param("hot_share", float, 0.5, "share of requests for a hot one", minimum=0, maximum=1),
            *CATALOGUE,
            *_arrivals(1.0, "requests"),
            *IDENTITY,
        ),
        source="kvbench",
    )
    yield WorkloadSpec(
        "zipf",
        "kvbench.trace.synth.picks:make_zipf",
        "prompts whose popularity follows Zipf's law",
        params=(
            Param("prompts", int, 500, "prompts", minimum=1, maximum=1e7),
            Param("exponent", float, 1.0, "of Zipf's law; 0: all alike", minimum=0, maximum=10),
            *CATALOGUE,
            *_arrivals(1.0, "requests"),
            *IDENTITY,
        ),
        source="kvbench",
    )
