"""From a log of text to an anonymous trace, on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cli


def test_a_log_is_imported_anonymized_and_replayed_alike(cli: Cli, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "tell me about caches " * 9}]
    answer = {"role": "assistant", "content": "they keep what is used again"}
    log = [
        {"timestamp": t, "session_id": "alice", "request": {"model": "m", "messages": messages * (t + 1)}}
        | {"response": {"choices": [{"message": answer}]}}
        for t in range(3)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    (tmp_path / "trace.key").write_bytes(bytes(32))
    run = cli("trace", "import", "log.jsonl", "-o", "log.arrow", "--block-tokens", "16")
    assert "log.jsonl: openai-chat (guessed), 3 rows" in run.out, run.err
    assert "note: no tokenizer was used: a token is 4 bytes of text" in run.out
    run = cli("trace", "anonymize", "log.arrow", "--key-file", "trace.key", "-o", "public.arrow", "--coarsen", "1s")
    assert run.code == 0, run.err
    assert "keyed: block_ids, request_id, session_id, output_block_ids" not in run.out
    assert "keyed: block_ids, session_id, output_block_ids\ngone: token_ids, output_token_ids" in run.out
    assert "kept, times rounded down to 1s: arrival_ns, input_tokens, output_tokens, turn, model" in run.out
    before, after = (cli("replay", name, "--json").out for name in ("log.arrow", "public.arrow"))
    assert json.loads(before)["summary"] == json.loads(after)["summary"]
    assert json.loads(before)["summary"]["blocks"]["hit"] > 0


def test_what_is_wrong_with_a_key_or_a_rule_is_one_message(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "short.key").write_text("abc")
    (tmp_path / "log.jsonl").write_text("{}")
    run = cli("trace", "anonymize", "x.arrow", "--key-file", "short.key", "-o", "y.arrow")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "short.key: a key must have 16 bytes or more, and this one has 3" in run.err
    run = cli("trace", "import", "log.jsonl", "--format", "openai-chat,bytes_per_token=4,characters_per_token=1")
    assert run.code == 2
    assert "bytes_per_token=4 and characters_per_token=1 are different rules" in run.err
