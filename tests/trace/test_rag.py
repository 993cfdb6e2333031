"""The RAG workload: what its prompts share, and how long it takes until all of it was seen."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, permutations

import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.plugins import load_registry
from kvbench.specs import WorkloadSpec
from kvbench.trace import open_trace
from kvbench.trace.synth.rag import make_rag

SMALL = {
    "requests": 300,
    "num_documents": 6,
    "docs_per_request": 3,
    "document_tokens": 24,
    "system_tokens": 20,
    "question_tokens": 5.0,
    "block_tokens": 8,
}


def table_of(seed=1, **params):
    made = make_rag(seed, **{**SMALL, **params})
    return pa.Table.from_batches(made.batches(), made.schema).replace_schema_metadata(made.facts.to_metadata())


def token_rows(seed=1, **params):
    return table_of(seed, ids="token", **params)["token_ids"].to_pylist()


def documents(tokens, params=SMALL):
    """The documents of a prompt, each as its tokens."""
    size, first = params["document_tokens"], params["system_tokens"]
    return tuple(tuple(tokens[at : at + size]) for at in range(first, first + params["docs_per_request"] * size, size))


def hits(table, **settings):
    return kvbench.replay(table, keep_requests=True, **settings).requests["hit_tokens"].to_pylist()


def split(tokens, separator):
    """The pieces of a prompt between its separators."""
    pieces, at = [[]], 0
    while at < len(tokens):
        if tokens[at : at + len(separator)] == separator:
            pieces.append([])
            at += len(separator)
        else:
            pieces[-1].append(tokens[at])
            at += 1
    return pieces


@pytest.mark.parametrize("ids", ["block", "token"])
def test_a_seed_makes_the_same_trace_again_and_another_seed_another(ids):
    assert table_of(ids=ids).equals(table_of(ids=ids))
    assert not table_of(ids=ids).equals(table_of(seed=2, ids=ids))


@pytest.mark.parametrize("ids", ["block", "token"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"system_tokens": 0, "separator_tokens": 3},
        {"docs_per_request": 0},
        {"block_tokens": 1},
        {"document_tokens": 1, "order": "shuffled"},
        {"requests": 2000},
    ],
)
def test_the_trace_keeps_the_rules_of_the_schema(ids, params):
    made = make_rag(1, **{**SMALL, **params, "ids": ids})
    trace = open_trace(table_of(ids=ids, **params))
    assert sum(batch.num_rows for batch in trace.batches()) == {**SMALL, **params}["requests"]
    assert trace.facts == made.facts
    assert trace.facts.dense is (ids == "block")


def test_sorted_documents_make_as_many_prefixes_as_there_are_combinations():
    rows = [documents(tokens) for tokens in token_rows()]
    all_documents = sorted({document for row in rows for document in row})
    assert len(all_documents) == 6
    assert len(set(rows)) == math.comb(6, 3)
    assert {tuple(sorted(row)) for row in rows} == set(combinations(all_documents, 3))


def test_shuffled_documents_come_in_every_order():
    rows = {documents(tokens) for tokens in token_rows(order="shuffled", requests=1500)}
    assert rows == set(permutations({document for row in rows for document in row}, 3))


def test_the_order_of_documents_changes_no_other_draw():
    one, two = (table_of(order=order, ids="token") for order in ("sorted", "shuffled"))
    for name in ("arrival_ns", "input_tokens", "output_tokens"):
        assert one[name].equals(two[name])
    for left, right in zip(one["token_ids"].to_pylist(), two["token_ids"].to_pylist(), strict=True):
        assert sorted(documents(left)) == sorted(documents(right))


@pytest.mark.parametrize(("count", "size"), [(10, 4), (8, 3)])
def test_warm_up_takes_as_long_as_coupon_collecting(count, size):
    """N·ln(1/(1−p)) requests until a share p of the N prefixes was seen, within four standard errors."""
    total, share, runs = math.comb(count, size), 0.9, 25
    goal = round(share * total)
    params = {"num_documents": count, "docs_per_request": size, "document_tokens": 1, "system_tokens": 0}
    needed = []
    for seed in range(runs):
        seen: set[tuple[int, ...]] = set()
        rows = table_of(seed, **{**params, "block_tokens": 1, "requests": 8 * total})["block_ids"].to_pylist()
        for number, row in enumerate(rows, 1):
            seen.add(tuple(row[:size]))
            if len(seen) == goal:
                needed.append(number)
                break
    new = [(total - found) / total for found in range(goal)]
    deviation = math.sqrt(sum((1 - p) / p**2 for p in new))
    law = total * math.log(1 / (1 - share))
    # The law is the limit for many prefixes; for few, the exact mean is p / (2 (1 − p)) below it.
    assert sum(needed) / runs == pytest.approx(law, abs=4 * deviation / math.sqrt(runs) + 1 / (1 - share))


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_chained_keys_hit_leading_documents_that_were_seen_in_this_order_and_nothing_else(order):
    table = table_of(ids="token", order=order)
    seen: set[tuple[tuple[int, ...], ...]] = set()
    expected = []
    for number, tokens in enumerate(table["token_ids"].to_pylist()):
        row = documents(tokens)
        shared = max((length for length in range(4) if row[:length] in seen), default=0)
        expected.append((20 + 24 * shared) // 8 * 8 if number else 0)
        seen |= {row[:length] for length in range(4)}
    assert hits(table) == expected
    assert len(set(expected)) == 5


def test_segment_keys_hit_any_document_that_was_seen_wherever_it_stood():
    """LM-30. A prefix cache of segments still ends at the first document that nobody had before."""
    table = table_of(ids="token", order="shuffled", separator_tokens=2, num_documents=20)
    seen: set[tuple[int, ...]] = set()
    expected = []
    for number, tokens in enumerate(table["token_ids"].to_pylist()):
        found = list(map(tuple, split(tokens, [32_000, 32_001])[1:-1]))
        known = next((at for at, document in enumerate(found) if document not in seen), len(found))
        expected.append(20 // 8 * 8 + 24 * known if number else 0)
        seen.update(found)
    segment = hits(table, tokens="segment,separator=32000 32001")
    assert segment == expected
    assert segment[50:] == [16 + 3 * 24] * 250
    assert sum(hits(table)) < 0.7 * sum(segment)


@pytest.mark.parametrize("params", [{}, {"separator_tokens": 5, "order": "shuffled"}, {"system_tokens": 0}])
def test_block_ids_hit_as_the_tokens_do(params):
    assert hits(table_of(**params)) == hits(table_of(ids="token", **params))


def test_the_separator_cuts_a_prompt_into_its_parts():
    plain, cut = token_rows(), token_rows(separator_tokens=2)
    for before, after in zip(plain, cut, strict=True):
        system, *found, question = split(after, [32_000, 32_001])
        assert tuple(map(tuple, found)) == documents(before)
        assert [*system, *(token for document in found for token in document), *question] == before


def test_without_a_system_prompt_no_separator_comes_first():
    parts = split(token_rows(system_tokens=0, separator_tokens=1)[0], [32_000])
    assert [len(part) for part in parts[:3]] == [24, 24, 24]
    assert len(parts) == 4


def test_means_are_near_what_was_asked_for():
    rows = table_of(requests=4000, question_tokens=50.0, rate=2.0).to_pylist()
    context = 20 + 3 * 24
    assert sum(row["input_tokens"] - context for row in rows) / len(rows) == pytest.approx(50, rel=0.05)
    assert sum(row["output_tokens"] for row in rows) / len(rows) == pytest.approx(128, rel=0.05)
    assert rows[-1]["arrival_ns"] / 1e9 == pytest.approx(2000, rel=0.05)
    assert all(one["arrival_ns"] <= two["arrival_ns"] for one, two in pairwise(rows))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"docs_per_request": 7}, "docs_per_request = 7 is above num_documents = 6"),
        ({"document_tokens": 0}, "document_tokens = 0 is below 1"),
        ({"rate": 0}, "rate = 0 must be above 0"),
        ({"question_tokens": float("inf")}, "question_tokens = inf must be a finite number"),
        ({"order": "best"}, "order = 'best' is not one of sorted, shuffled"),
        ({"ids": "words"}, "ids = 'words' is not one of block, token"),
    ],
)
def test_parameters_out_of_range_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        make_rag(1, **{**SMALL, **params})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rate": 1e-300}, "more than 292 years"),
        ({"document_tokens": 2**31}, "has a prompt of .* tokens, above 4,294,967,295; lower docs_per_request"),
    ],
)
def test_times_and_lengths_that_a_trace_cannot_hold_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        list(make_rag(1, **{**SMALL, **params}).batches())


def test_the_declared_parameters_are_those_that_the_workload_takes():
    spec = load_registry(autoload=False).get(WorkloadSpec, "rag")
    assert make_rag(3, **spec.parse_params({})).facts == make_rag(3).facts
    assert list(make_rag(3, **spec.parse_params({"requests": 5})).batches()) == list(make_rag(3, requests=5).batches())
