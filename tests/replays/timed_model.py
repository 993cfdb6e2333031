"""Timed replay of one worker in plain Python: what semantics §4–6 and §9 say, second by second, written without
the compiled core. One GPU tier with LRU, and below it maybe one tier over links of its own.

It is made to be read and compared with, not to be fast: each block is an entry of a dictionary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

NEVER = math.inf
TIMES = ("admitted_ns", "fetch_start_ns", "fetch_end_ns", "prefill_start_ns", "first_token_ns", "end_ns")
COUNTS = (
    *("queue_ns", "fetch_ns", "prefill_ns", "computed_tokens", "generated_tokens", "preemptions"),
    *("readmitted_blocks", "hit_blocks", "hit_gpu_blocks", "hit_cpu_blocks", "stored_blocks", "evicted_blocks"),
    "miss_not_visible_blocks",
)


@dataclass(frozen=True)
class Lower:
    """The tier below: its blocks, and its links; ``bytes_per_ns`` of each direction."""

    capacity: int | None
    read_latency_ns: int
    write_latency_ns: int
    bytes_per_ns: Fraction
    fair: bool


@dataclass(frozen=True)
class Settings:
    block_tokens: int
    block_bytes: int
    capacity: int
    token_ns: int
    decode_ns: int
    overhead_ns: int = 0
    rebuild_ns: int = 0
    batch_tokens: int = 8192
    sequences: int = 256
    fetches: int = 8
    chunked: bool = True
    share: bool = False
    blocking: bool = False
    decode: bool = True
    recompute_block: bool = False
    lower: Lower | None = None


# -- what holds blocks -----------------------------------------------------------------------------


@dataclass(eq=False)
class Block:
    pins: int = 0
    pending: bool = False


class Store:
    """The blocks of a tier, the least recent first, and the part of it that is for no block of the cache."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = NEVER if capacity is None else capacity
        self.blocks: dict[int, Block] = {}
        self.private = 0

    def landed(self, key: int) -> bool:
        return key in self.blocks and not self.blocks[key].pending

    def pinned(self) -> int:
        return sum(block.pins > 0 for block in self.blocks.values())

    def make_room(self, count: int, spared: Iterable[int] = ()) -> list[Block]:
        """Evict the least recent blocks that nobody uses until ``count`` are free."""
        own, gone = set(spared), []
        while len(self.blocks) + self.private + count > self.capacity:
            key = next(key for key, block in self.blocks.items() if not block.pins and key not in own)
            gone.append(self.blocks.pop(key))
        return gone

    def sweep(self, keys: Sequence[int], new: set[int]) -> None:
        """From the last to the first: what is here is used, and what is ``new`` is stored, under way."""
        for key in reversed(keys):
            if key in self.blocks:
                self.blocks[key] = self.blocks.pop(key)
            elif key in new:
                self.blocks[key] = Block(pending=True)

    def fitting(self, keys: Sequence[int], wanted: set[int]) -> int:
        """How many leading blocks of a request can be here at once, beside what others have pinned."""
        room = self.capacity - self.private - self.pinned()
        for count, key in enumerate(keys):
            takes = not self.blocks[key].pins if key in self.blocks else key in wanted
            if takes and room == 0:
                return count
            room -= takes
        return len(keys)


# -- what moves blocks -----------------------------------------------------------------------------


@dataclass
class Transfer:
    size: int
    latency_ns: int
    order: int
    on_end: object
    left: Fraction = Fraction(0)
    waits_ns: Fraction = Fraction(0)


class Link:
    """Latency, then bandwidth: for all that flow at once in equal parts, or for one after the other."""

    def __init__(self, bytes_per_ns: Fraction, fair: bool) -> None:
        self.speed = bytes_per_ns
        self.fair = fair
        self.queue: list[Transfer] = []
        self.under_way: list[Transfer] = []
        self.at = Fraction(0)

    def start(self, transfer: Transfer, now: int) -> None:
        self.run(Fraction(now))
        transfer.left = Fraction(transfer.size)
        transfer.waits_ns = Fraction(transfer.latency_ns)
        self.queue.append(transfer)
        self._admit()

    def _admit(self) -> None:
        while self.queue and (self.fair or not self.under_way):
            self.under_way.append(self.queue.pop(0))

    def _next(self) -> Fraction | None:
        """How long until something changes."""
        flowing = [each for each in self.under_way if each.waits_ns == 0]
        changes = [each.waits_ns for each in self.under_way if each.waits_ns > 0]
        changes += [each.left * len(flowing) / self.speed for each in flowing]
        return min(changes, default=None)

    def run(self, until: Fraction) -> list[tuple[int, Transfer]]:
        """Let time pass; who ended, and in which whole nanosecond."""
        ended = []
        while True:
            step = self._next()
            if step is None or self.at + step > until:
                self._pass(until - self.at)
                return ended
            self._pass(step)
            for each in [each for each in self.under_way if each.waits_ns == 0 and each.left == 0]:
                self.under_way.remove(each)
                ended.append((math.ceil(self.at), each))
            self._admit()

    def _pass(self, step: Fraction) -> None:
        flowing = [each for each in self.under_way if each.waits_ns == 0]
        for each in self.under_way:
            if each.waits_ns > 0:
                each.waits_ns -= step
        for each in flowing:
            each.left -= step * self.speed / len(flowing)
        self.at += step

    def next_end(self) -> float:
        """The whole nanosecond in which the next one ends, if nothing is added."""
        copy = Link(self.speed, self.fair)
        copy.at = self.at
        copies = {id(each): Transfer(each.size, 0, 0, None, each.left, each.waits_ns) for each in self.under_way}
        copy.under_way = list(copies.values())
        while copy.under_way:
            step = copy._next()
            assert step is not None
            copy._pass(step)
            if any(each.waits_ns == 0 and each.left == 0 for each in copy.under_way):
                return math.ceil(copy.at)
        return NEVER


@dataclass(eq=False)
class Write:
    """Computed blocks of a request on their way into the lower tier.

    ``places``   which one of the blocks that are moved each of them is; those that are lost are taken out.
    ``sources``  what they are read from, since the transfer began.
    """

    job: Job | None
    places: dict[int, int]
    sources: dict[int, Block | None] = field(default_factory=dict)
    transfer: Transfer | None = None


# -- requests --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Job:
    number: int
    arrival_ns: int
    keys: list[int]
    prompt: int
    answer: int
    state: str = "waiting"
    since_ns: int = 0
    target: int = 0
    computed: int = 0
    generated: int = 0
    chunk: int = 0
    held: int = 0
    pins: list[int] = field(default_factory=list)
    computing: list[int] = field(default_factory=list)
    fetching: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    write: Write | None = None
    looked_up: bool = False
    lacks: str = ""
    status: str = "unfinished"
    need_blocks: int | None = None
    times: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(TIMES))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))


class Model:
    """``run`` serves requests of (arrival_ns, keys of whole blocks, prompt tokens, answer tokens)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.gpu = Store(settings.capacity)
        self.cpu = Store(settings.lower.capacity if settings.lower else 0)
        lower = settings.lower
        self.reads, self.writes = (
            Link(lower.bytes_per_ns, lower.fair) if lower else Link(Fraction(1), True) for _ in "rw"
        )
        self.now = 0
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
        self.moving: list[Write] = []
        self.gone: list[Block] = []
        self.started = 0
        self.busy_ns = self.steps = self.rebuilds = self.lost = 0

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
            else:
                assert isinstance(what, Write)
                self.written(what)

    def start(self, link: Link, size: int, latency_ns: int, on_end: object) -> Transfer:
        transfer = Transfer(size, latency_ns, self.started, on_end)
        self.started += 1
        link.start(transfer, self.now)
        return transfer

    def become(self, job: Job, state: str) -> None:
        if job.times["first_token_ns"] is None:
            part = {"fetch": "fetch_ns", "prefill": "prefill_ns"}.get(job.state, "queue_ns")
            job.counts[part] += self.now - job.since_ns
        job.state = state
        job.since_ns = self.now

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_tokens)

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

    # -- blocks ------------------------------------------------------------------------------------

    def admit(self, job: Job, may_fetch: bool, may_start: bool) -> str:
        """Give a request its blocks; says whether it starts or fetches, or what it lacks."""
        keys, settings = job.keys, self.settings
        limit = len(keys)
        if settings.recompute_block and limit and job.prompt == limit * settings.block_tokens:
            limit -= 1
        found = ["gpu" if self.gpu.landed(key) else "cpu" if self.cpu.landed(key) else "" for key in keys]
        hit = next((i for i in range(limit) if not found[i]), limit)
        if settings.share and hit < limit and keys[hit] in self.gpu.blocks:
            return "block"
        fetches = "cpu" in found[:hit]
        if not (may_fetch if fetches else may_start):
            return "fetch" if fetches else "seat"
        held = self.blocks_of(job.target)
        mine = [key for key in keys if self.gpu.landed(key)]
        unpinned = sum(not self.gpu.blocks[key].pins for key in mine)
        if held - len(mine) > self.gpu.capacity - self.gpu.private - self.gpu.pinned() - unpinned:
            return "room"
        first = not job.looked_up
        self.count(job, found, hit)
        stored, evicted = self.take(job, hit, held, set(keys[hit:]))
        if first:
            job.counts |= {"stored_blocks": stored, "evicted_blocks": evicted}
        job.sources = [keys[i] for i in range(hit) if found[i] == "cpu" and keys[i] in self.cpu.blocks]
        for key in job.sources:
            self.cpu.blocks[key].pins += 1
        if fetches:
            assert settings.lower is not None
            size = found[:hit].count("cpu") * settings.block_bytes
            self.start(self.reads, size, settings.lower.read_latency_ns, job)
        self.settle()
        return "fetches" if fetches else "starts"

    def count(self, job: Job, found: list[str], hit: int) -> None:
        """A lookup counts once; blocks found again after a preemption are told apart (semantics §4.1)."""
        if job.looked_up:
            job.counts["readmitted_blocks"] += hit
            return
        job.looked_up = True
        job.counts["hit_blocks"] = hit
        job.counts["hit_gpu_blocks"] = found[:hit].count("gpu")
        job.counts["hit_cpu_blocks"] = found[:hit].count("cpu")
        job.counts["miss_not_visible_blocks"] = sum(
            not place and (key in self.gpu.blocks or key in self.cpu.blocks)
            for key, place in zip(job.keys[hit:], found[hit:], strict=True)
        )

    def take(self, job: Job, hit: int, held: int, to_compute: set[int]) -> tuple[int, int]:
        """Room in the GPU for all that the request holds, room below for what it computes, and the sweeps; how many
        blocks are stored, and how many evicted."""
        keys = job.keys
        new = [key for key in keys if key not in self.gpu.blocks]
        evicted = self.evict(len(new), spared=keys)
        self.gpu.sweep(keys, set(new))
        job.computing = [key for key in new if key in to_compute]
        job.fetching = [key for key in new if key not in to_compute]
        job.pins = [key for key in keys if key in new or self.gpu.landed(key)]
        for key in job.pins:
            self.gpu.blocks[key].pins += 1
        below = self.take_below(job, to_compute) if self.settings.lower else (0, 0)
        job.held = held
        job.computed = min(hit * self.settings.block_tokens, job.target - 1)
        evicted += self.evict(held - len(job.pins))
        self.gpu.private += held - len(job.pins)
        return len(new) + below[0], evicted + below[1]

    def take_below(self, job: Job, to_compute: set[int]) -> tuple[int, int]:
        wanted = {key for key in to_compute if key not in self.cpu.blocks}
        leading = job.keys[: self.cpu.fitting(job.keys, wanted)]
        new = [key for key in leading if key in wanted]
        evicted = self.cpu.make_room(len(new), spared=leading)
        self.cpu.sweep(job.keys, set(new))
        for key in new:
            self.cpu.blocks[key].pins += 1
        if new:
            job.write = Write(job, {key: place for place, key in enumerate(new)})
        return len(new), len(evicted)

    def evict(self, count: int, spared: Iterable[int] = ()) -> int:
        gone = self.gpu.make_room(count, spared)
        self.gone += gone
        return len(gone)

    def land_computed(self, job: Job) -> None:
        """Whole blocks are visible at the end of the step that computes them (semantics §9.5)."""
        blocks = job.computed // self.settings.block_tokens
        for key in [key for key in job.computing if key in job.keys[:blocks]]:
            job.computing.remove(key)
            self.gpu.blocks[key].pending = False
        if job.computed == job.target and job.write is not None:
            self.start_write(job.write)

    def fetched(self, job: Job) -> None:
        for key in job.sources:
            self.cpu.blocks[key].pins -= 1
        for key in job.fetching:
            self.gpu.blocks[key].pending = False
        job.fetching, job.sources = [], []
        job.times["fetch_end_ns"] = self.now
        self.become(job, "ready")
        self.ready.append(job)
        self.wake()

    def start_write(self, write: Write) -> None:
        lower = self.settings.lower
        assert lower is not None
        write.sources = {key: self.gpu.blocks.get(key) for key in write.places}
        size = len(write.places) * self.settings.block_bytes
        write.transfer = self.start(self.writes, size, lower.write_latency_ns, write)
        self.moving.append(write)

    def written(self, write: Write) -> None:
        self.moving.remove(write)
        for key in write.places:
            self.land_below(key)
        job = write.job
        if job is None:
            return
        job.write = None
        if job.state == "writing":
            self.end(job)
            self.wake()

    def land_below(self, key: int) -> None:
        self.cpu.blocks[key].pending = False
        self.cpu.blocks[key].pins -= 1

    def release(self, job: Job) -> None:
        """The request holds nothing any more. What it has computed is still written, the rest is gone."""
        self.gpu.private -= job.held - len(job.pins)
        for key in job.pins:
            if key in job.computing:
                del self.gpu.blocks[key]
            else:
                self.gpu.blocks[key].pins -= 1
        job.pins, job.computing, job.held = [], [], 0
        write, job.write = job.write, None
        if write is None:
            return
        write.job = None
        if write.transfer is None:
            blocks = job.computed // self.settings.block_tokens
            for key in [key for key in write.places if key not in job.keys[:blocks]]:
                del self.cpu.blocks[key], write.places[key]
            if write.places:
                self.start_write(write)

    def settle(self) -> None:
        """After an operation: what left the GPU while it was written is lost, unless it has moved by now."""
        self.writes.run(Fraction(self.now))
        for write in self.moving:
            transfer = write.transfer
            assert transfer is not None
            moved = transfer.size - transfer.left
            for key in [key for key in write.places if write.sources[key] in self.gone]:
                if moved >= (write.places.pop(key) + 1) * self.settings.block_bytes:
                    self.land_below(key)
                else:
                    del self.cpu.blocks[key]
                    self.lost += 1
        self.gone = []
