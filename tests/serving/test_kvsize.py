"""Bytes of KV per token, request and block, and back. Names begin with the report that a test answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ConfigError
from kvbench.serving import KvLayout, KvShape, StateShape, capacity_of

GIB = 1 << 30

GQA = KvShape(name="gqa", full_layers=32, kv_heads=8, head_dim=128, dtype="bf16")
MLA = KvShape(name="mla", full_layers=61, latent_dim=512, rope_dim=64, dtype="bf16")
HYBRID = KvShape(
    name="hybrid",
    full_layers=4,
    kv_heads=8,
    head_dim=128,
    dtype="bf16",
    state=StateShape(layers=36, heads=128, head_dim=64, state_dim=128, conv_kernel=4, groups=1),
)


def constant_and_per_token(fixed: int, per_token: int) -> KvShape:
    return KvShape(name="line", full_layers=1, kv_heads=1, head_dim=per_token // 4, dtype="bf16", fixed_bytes=fixed)


@st.composite
def layouts(draw: st.DrawFn) -> KvLayout:
    windowed = draw(st.integers(0, 20))
    shape = KvShape(
        name="drawn",
        full_layers=draw(st.integers(0 if windowed else 1, 20)),
        window_layers=windowed,
        window=draw(st.integers(1, 5_000)) if windowed else None,
        kv_heads=draw(st.integers(1, 16)),
        head_dim=draw(st.sampled_from([1, 64, 80, 128])),
        dtype=draw(st.sampled_from(["bf16", "fp8", "fp4"])),
        fixed_bytes=draw(st.integers(0, 10**7)),
        state=draw(st.sampled_from([None, HYBRID.state])),
    )
    return KvLayout(shape, draw(st.sampled_from([1, 2, 3, 8, 16])))


def test_f01_grouped_query_attention_counts_kv_heads_alone() -> None:
    assert KvLayout(GQA).bytes_per_token == 131_072
    assert KvLayout(GQA).block_bytes(64) == 64 * 131_072


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_f03_the_same_total_memory_holds_the_same_tokens_at_every_tp(tp: int) -> None:
    layout = KvLayout(GQA, tp)
    assert layout.tokens_of(8 * GIB) == 65_536
    assert capacity_of(layout, 8 * GIB, "host", block_tokens=16).host.tokens == 65_536
    assert capacity_of(layout, 8 * GIB // tp, "rank", block_tokens=16).host.tokens == 65_536


def test_f04_fp8_halves_the_kv() -> None:
    assert KvLayout(GQA.with_dtype("fp8")).bytes_per_token == 65_536
    assert KvLayout(GQA.with_dtype("fp4")).bytes_per_token == 32_768


def test_f04_scales_are_counted_when_they_are_given() -> None:
    scaled = GQA.with_dtype("fp8", scale_bytes=4)
    assert KvLayout(scaled).bytes_per_token == 65_536 + 32 * 8 * 2 * 4
    assert KvLayout(MLA.with_dtype("fp8", scale_bytes=16)).bytes_per_token == 61 * (576 + 16)


def test_f04_scales_of_16_bit_kv_are_refused() -> None:
    with pytest.raises(ConfigError, match="--scale-bytes has no effect with bf16; give --dtype fp8"):
        GQA.with_dtype(None, scale_bytes=4)


def test_f04_the_constant_state_keeps_its_own_dtype() -> None:
    assert KvLayout(HYBRID.with_dtype("fp8")).fixed_bytes == KvLayout(HYBRID).fixed_bytes


def test_an_unknown_dtype_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"--dtype = 'bf15' is not a dtype of KV; did you mean 'bf16'\?"):
        GQA.with_dtype("bf15")


@pytest.mark.parametrize("name", ["bfloat16", "torch.bfloat16", "BF16", "half", "float16"])
def test_dtypes_go_by_the_names_of_engines(name: str) -> None:
    assert KvLayout(GQA.with_dtype(name)).bytes_per_token == 131_072


def test_f05_a_request_is_a_constant_and_so_many_bytes_a_token() -> None:
    layout = KvLayout(constant_and_per_token(1_000_000, 1_000))
    assert layout.bytes_of(1_000) == 2_000_000
    assert layout.bytes_of(10_000) == 11_000_000


def test_f05_the_state_of_a_mamba_hybrid_does_not_grow() -> None:
    layout = KvLayout(HYBRID)
    assert layout.fixed_bytes == 36 * 2 * (128 * 64 * 128 + 3 * (128 * 64 + 2 * 128))
    assert layout.bytes_of(1_000) == layout.fixed_bytes + 1_000 * 4 * 2 * 8 * 128 * 2


def test_the_groups_of_a_state_replicate_over_ranks_and_its_heads_do_not() -> None:
    more = KvLayout(HYBRID, 2).fixed_bytes - KvLayout(HYBRID).fixed_bytes
    assert more == 36 * 2 * 3 * 2 * 128


@given(layouts(), st.integers(0, 100_000))
def test_f06_tokens_come_back_from_their_bytes(layout: KvLayout, tokens: int) -> None:
    size = layout.bytes_of(tokens)
    back = layout.tokens_of(size)
    if back is None:
        assert layout.growth_bytes == 0
        assert layout.bytes_of(10 * tokens + 10_000) <= layout.bytes_of(max(tokens, layout.shape.window or 0))
    else:
        assert back == tokens or (layout.growth_bytes == 0 and back >= tokens)


@given(layouts(), st.integers(0, 10**10))
def test_f06_capacity_in_tokens_is_the_inverse_within_one_token(layout: KvLayout, size: int) -> None:
    for tokens_of, bytes_of in (
        (layout.tokens_of, layout.bytes_of),
        (layout.rank_tokens_of, layout.rank_bytes_of),
    ):
        tokens = tokens_of(size)
        if tokens is None:
            assert bytes_of(10**9) <= size
        else:
            assert tokens == 0 or bytes_of(tokens) <= size
            assert bytes_of(tokens + 1) > size


def test_window_layers_stop_growing_at_their_window() -> None:
    shape = KvShape(name="w", full_layers=1, window_layers=3, window=100, kv_heads=1, head_dim=1, dtype="bf16")
    layout = KvLayout(shape)
    assert (layout.bytes_per_token, layout.growth_bytes) == (16, 4)
    assert [layout.bytes_of(tokens) for tokens in (1, 100, 101)] == [16, 1_600, 1_604]
    assert layout.block_bytes(10) == 160


def test_a_model_of_window_layers_alone_fits_requests_of_any_length() -> None:
    shape = KvShape(name="w", full_layers=0, window_layers=3, window=100, kv_heads=1, head_dim=1, dtype="bf16")
    assert KvLayout(shape).tokens_of(1_199) == 99
    assert KvLayout(shape).tokens_of(1_200) is None


def test_f07_a_capacity_below_one_block_says_how_much_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"needs 2,097,152 bytes \(2.00 MiB\) per host; give at least 2097152B"):
        capacity_of(KvLayout(GQA, 8), 1_000_000, "host", block_tokens=16)
    with pytest.raises(ConfigError, match=r"needs 262,144 bytes .* per rank; give at least 262144B"):
        capacity_of(KvLayout(GQA, 8), 100_000, "rank", block_tokens=16)
    assert capacity_of(KvLayout(GQA, 8), 262_144, "rank", block_tokens=16).host.blocks == 1


def test_e16_a_capacity_per_rank_is_that_much_for_every_rank_of_a_host() -> None:
    held = capacity_of(KvLayout(GQA, 8), 50 * 10**9, "rank", block_tokens=16, workers=2, hosts=3)
    assert (held.rank.size, held.host.size, held.cluster.size) == (50 * 10**9, 800 * 10**9, 2_400 * 10**9)
    assert held.host.tokens == 2 * held.rank.tokens
    assert held.cluster.tokens == 3 * held.host.tokens


def test_e16_a_capacity_of_the_cluster_is_shared_by_its_hosts_and_ranks() -> None:
    held = capacity_of(KvLayout(GQA, 8), 96 * GIB, "cluster", block_tokens=16, workers=2, hosts=3)
    assert (held.rank.size, held.host.size, held.cluster.size) == (2 * GIB, 32 * GIB, 96 * GIB)
    assert held.cluster.tokens == 96 * GIB // 131_072


def test_requests_that_fit_are_counted_with_their_constant_state() -> None:
    layout = KvLayout(constant_and_per_token(1_000_000, 1_000))
    held = capacity_of(layout, 10_000_000, "host", block_tokens=16, request_tokens=1_000)
    assert held.host.requests == 5
    assert held.longest_request_tokens == 9_000


def test_heads_replicate_when_there_are_more_ranks_than_heads() -> None:
    assert KvLayout(GQA, 8).bytes_per_token == 131_072
    assert KvLayout(GQA, 16).bytes_per_token == 2 * 131_072
    assert KvLayout(GQA, 16).rank_bytes_per_token == KvLayout(GQA, 8).rank_bytes_per_token


def test_heads_that_do_not_divide_are_rounded_up_on_each_rank() -> None:
    assert KvLayout(GQA, 3).rank_bytes_per_token == 32 * 2 * 3 * 128 * 2


def test_every_rank_holds_the_whole_latent() -> None:
    one, eight = KvLayout(MLA), KvLayout(MLA, 8)
    assert one.bytes_per_token == 61 * 576 * 2 == 70_272
    assert eight.rank_bytes_per_token == one.bytes_per_token
    assert eight.bytes_per_token == 8 * one.bytes_per_token


def test_a_latent_that_the_first_rank_alone_saves_is_stored_once() -> None:
    layout = KvLayout(MLA, 8, once=True)
    assert layout.bytes_per_token == layout.rank_bytes_per_token == 70_272
    assert layout.block_bytes(64) == layout.rank_block_bytes(64) == 64 * 70_272
    held = capacity_of(layout, 64 * 70_272, "rank", block_tokens=64)
    assert (held.host.size, held.host.blocks) == (64 * 70_272, 1)


def test_saving_by_the_first_rank_alone_is_refused_where_ranks_differ() -> None:
    with pytest.raises(ConfigError, match="--save-only-first-rank has no effect with gqa"):
        KvLayout(GQA, 8, once=True)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="--tp = 0 must be at least 1"):
        KvLayout(GQA, 0)
    with pytest.raises(ConfigError, match="--block-tokens = 0 must be at least 1"):
        KvLayout(GQA).block_bytes(0)
    for name in ("workers", "hosts"):
        with pytest.raises(ConfigError, match=f"--{name} = 0 must be at least 1"):
            capacity_of(KvLayout(GQA), GIB, "host", block_tokens=16, **{name: 0})
    with pytest.raises(ConfigError, match="--scope = 'node' is not one of rank, host, cluster"):
        capacity_of(KvLayout(GQA), GIB, "node", block_tokens=16)


def test_a_model_without_attention_has_no_blocks() -> None:
    shape = KvShape(name="ssm", full_layers=0, dtype="bf16", state=HYBRID.state)
    assert KvLayout(shape).tokens_of(GIB) is None
    with pytest.raises(ConfigError, match="--capacity has no effect with ssm"):
        capacity_of(KvLayout(shape), GIB, "host", block_tokens=16)
