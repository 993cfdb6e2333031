"""near-idle keeps the contract of routers, and does what it says."""

import pyarrow as pa

import kvbench
from kvbench.testing import RouterPolicyContract

SCHEMA = pa.schema({"arrival_ns": pa.int64(), "input_tokens": pa.uint32(), "block_ids": pa.list_(pa.uint64())})


class TestNearIdle(RouterPolicyContract):
    spec_name = "near-idle"


def test_a_prefix_that_all_prompts_share_is_on_more_than_one_worker() -> None:
    """max-prefix sends every request after the first one to the same worker."""
    rows = [{"arrival_ns": at, "input_tokens": 20, "block_ids": [1, 100 + at]} for at in range(100)]
    trace = pa.Table.from_pylist(rows, SCHEMA)
    uneven = {
        router: kvbench.replay(trace, block_tokens=10, workers=4, router=router).summary["workers"]
        for router in ("max-prefix", "near-idle")
    }
    assert uneven["max-prefix"]["max_over_mean_requests"] == 4.0
    assert uneven["near-idle"]["max_over_mean_requests"] < 1.5
