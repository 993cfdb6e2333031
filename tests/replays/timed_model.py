"""Timed replay of one worker in plain Python: what semantics §9 says, step by step, written without the compiled core.

It is made to be read and compared with, not to be fast: each block is an entry of a dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.replays.model_blocks import Blocks, Job, Settings, Write
from tests.replays.model_stores import NEVER


class Model(Blocks):
    """``run`` serves requests of (arrival_ns, keys of whole blocks, prompt tokens, answer tokens)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.waiting: list[Job] = []
        self.ready: list[Job] = []
        self.prefilling: list[Job] = []
        self.decoding: list[Job] = []
        self.holding: list[Job] = []
        self.step: list[Job] = []
        self.step_ends: float = NEVER
        self.step_began = 0
        self.batch: tuple[set[tuple[int, int]], ...] = ()
        self.before: tuple[set[tuple[int, int]], ...] = ()
        self.budget = 0
        self.busy_ns = self.steps = self.rebuilds = 0

    def run(self, requests: Sequence[tuple[int, list[int], int, int]]) -> list[Job]:
        jobs = [Job(number, *request) for number, request in enumerate(requests)]
        coming = list(jobs)
        while True:
            ends = [link.next_end() for link in (self.reads, self.writes)]
            arrives = coming[0].arrival_ns if coming else NEVER
            moment = min(*ends, self.step_ends, arrives)
            if moment == NEVER:
                return jobs
            self.now = int(moment)
            if min(ends) == moment:
                self.transfers_end()
            elif self.step_ends == moment:
                self.end_step()
            else:
                self.arrive(coming.pop(0))

    # -- time --------------------------------------------------------------------------------------

    def arrive(self, job: Job) -> None:
        job.since_ns = self.now
        job.target = job.prompt
        lifetime = job.prompt + (max(job.answer, 1) - 1 if self.settings.decode else 0)
        if self.blocks_of(lifetime) > self.gpu.capacity:
            job.status = "rejected"
            job.need_blocks = self.blocks_of(lifetime)
            return
        self.waiting.append(job)
        self.wake()

    def wake(self) -> None:
        """A step begins; or what has come joins the one that has begun at this very moment."""
        if self.step_ends == NEVER:
            self.begin_step()
        elif self.step_began == self.now:
            self.fill_step()

    def transfers_end(self) -> None:
        ended = [each for link in (self.reads, self.writes) for each in link.run(Fraction(self.now))]
        for _, transfer in sorted(ended, key=lambda each: (each[0], each[1].order)):
            what = transfer.on_end
            if isinstance(what, Job):
                self.fetched(what)
            elif isinstance(what, Write):
                self.written(what)

    def fetched(self, job: Job) -> None:
        self.land_fetched(job)
        job.times["fetch_end_ns"] = self.now
        self.become(job, "ready")
        self.ready.append(job)
        self.wake()

    def written(self, write: Write) -> None:
        job = write.job
        self.land_written(write)
        if job is not None and job.state == "writing":
            self.end(job)
            self.wake()

    def become(self, job: Job, state: str) -> None:
        if job.times["first_token_ns"] is None:
            part = {"fetch": "fetch_ns", "prefill": "prefill_ns"}.get(job.state, "queue_ns")
            job.counts[part] += self.now - job.since_ns
        job.state = state
        job.since_ns = self.now

    # -- a step ------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        self.step = []
        self.step_began = self.now
        self.budget = max(self.settings.batch_tokens - len(self.decoding), 0)
        for job in list(self.prefilling):
            self.compute(job)
        self.fill_step()

    def fill_step(self) -> None:
        while self.ready and self.budget > 0 and self.has_seat():
            if not self.compute(self.ready[0]):
                break
            self.begin_prefill(self.ready.pop(0))
        self.admit_waiting()
        if not self.step and not self.decoding:
            return
        self.batch = tuple(
            {(job.number, job.counts["preemptions"]) for job in jobs} for jobs in (self.step, self.decoding)
        )
        taken = sum(job.chunk for job in self.step) * self.settings.token_ns + self.settings.overhead_ns
        taken += bool(self.decoding) * self.settings.decode_ns
        taken += (self.batch != self.before) * self.settings.rebuild_ns
        self.step_ends = self.step_began + taken

    def has_seat(self) -> bool:
        return len(self.step) + len(self.decoding) < self.settings.sequences

    def compute(self, job: Job) -> bool:
        """Have the step compute of a prompt what it may; whether it does. What has to be computed at once and is too
        long waits until it is alone, and nobody else begins."""
        left = job.target - job.computed
        if self.settings.chunked:
            left = min(left, self.budget)
        elif left > self.budget and (self.step or self.decoding):
            self.budget = 0
            return False
        if left == 0 or not self.has_seat():
            return False
        self.budget -= min(left, self.budget)
        job.chunk = left
        self.step.append(job)
        if job.times["prefill_start_ns"] is None:
            job.times["prefill_start_ns"] = self.now
        return True

    def begin_prefill(self, job: Job) -> None:
        self.become(job, "prefill")
        self.prefilling.append(job)

    def admit_waiting(self) -> None:
        for job in list(self.waiting):
            fetching = sum(each.state == "fetch" for each in self.holding) + len(self.ready)
            may_fetch = self.settings.fetches == 0 or fetching < self.settings.fetches
            may_start = self.budget > 0 and self.has_seat()
            if not may_fetch and not may_start:
                return
            if (job.lacks == "fetch" and not may_fetch) or (job.lacks == "seat" and not may_start):
                continue
            outcome = self.admit(job, may_fetch, may_start)
            job.lacks = outcome
            if outcome == "room":
                return
            if outcome in ("fetch", "seat", "block"):
                continue
            self.waiting.remove(job)
            self.holding.append(job)
            if job.times["admitted_ns"] is None:
                job.times["admitted_ns"] = self.now
            if outcome == "fetches":
                self.become(job, "fetch")
                job.times["fetch_start_ns"] = self.now
                continue
            if self.compute(job):
                self.begin_prefill(job)
            else:
                self.become(job, "ready")
                self.ready.append(job)

    def end_step(self) -> None:
        self.step_ends = NEVER
        self.steps += 1
        self.rebuilds += self.batch != self.before
        self.before = self.batch
        self.busy_ns += self.now - self.step_began
        for job in self.step:
            job.computed += job.chunk
            job.counts["computed_tokens"] += job.chunk
            self.land_computed(job)
        growing = []
        for job in sorted(self.decoding, key=lambda job: job.number):
            job.generated += 1
            if job.generated >= job.answer:
                self.finish(job)
            elif self.is_full(job):
                growing.append(job)
        for job in self.step:
            if job.computed == job.target:
                growing += self.complete(job)
        for job in growing:
            if job.state == "decode":
                self.grow(job)
        self.begin_step()

    def complete(self, job: Job) -> list[Job]:
        """The prompt is computed: the next token is there."""
        self.prefilling.remove(job)
        self.become(job, "decode")
        self.decoding.append(job)
        if job.answer > 0:
            job.generated += 1
            if job.times["first_token_ns"] is None:
                job.times["first_token_ns"] = self.now
        if not self.settings.decode or job.generated >= job.answer:
            self.finish(job)
            return []
        return [job] if self.is_full(job) else []

    def is_full(self, job: Job) -> bool:
        """Whether the KV of the last token, which the next step computes, needs another block."""
        return job.held < self.blocks_of(job.prompt + job.generated)

    def finish(self, job: Job) -> None:
        self.decoding.remove(job)
        job.counts["generated_tokens"] = job.generated
        if self.settings.blocking and job.write is not None:
            self.become(job, "writing")
        else:
            self.end(job)

    def end(self, job: Job) -> None:
        job.times["end_ns"] = self.now
        job.status = "done"
        job.state = "ended"
        self.holding.remove(job)
        self.release(job)

    def grow(self, job: Job) -> None:
        while self.gpu.pinned() + self.gpu.private + 1 > self.gpu.capacity:
            victim = [each for each in self.holding if each.state not in ("fetch", "writing")][-1]
            self.preempt(victim)
            if victim is job:
                return
        self.evict(1)
        self.settle()
        self.gpu.private += 1
        job.held += 1

    def preempt(self, job: Job) -> None:
        for line in (self.decoding, self.prefilling, self.ready):
            if job in line:
                line.remove(job)
        job.counts["preemptions"] += 1
        self.holding.remove(job)
        self.release(job)
        job.lacks = ""
        job.target = job.prompt + job.generated
        job.computed = 0
        self.become(job, "waiting")
        self.waiting.insert(0, job)
