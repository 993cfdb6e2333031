"""The blocks of the model of timed replay: what requests take, wait for and let go of (semantics §4–6, §9.5).

One GPU tier with LRU, and below it maybe one tier over links of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from tests.replays.model_stores import Block, Link, Store, Transfer

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


class Blocks:
    """The tiers of a worker, and what is under way between them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.gpu = Store(settings.capacity)
        self.cpu = Store(settings.lower.capacity if settings.lower else 0)
        lower = settings.lower
        self.reads, self.writes = (
            Link(lower.bytes_per_ns, lower.fair) if lower else Link(Fraction(1), True) for _ in "rw"
        )
        self.now = 0
        self.moving: list[Write] = []
        self.gone: list[Block] = []
        self.started = self.lost = 0

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_tokens)

    def start(self, link: Link, size: int, latency_ns: int, on_end: object) -> Transfer:
        transfer = Transfer(size, latency_ns, self.started, on_end)
        self.started += 1
        link.start(transfer, self.now)
        return transfer

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

    def land_fetched(self, job: Job) -> None:
        for key in job.sources:
            self.cpu.blocks[key].pins -= 1
        for key in job.fetching:
            self.gpu.blocks[key].pending = False
        job.fetching, job.sources = [], []

    def start_write(self, write: Write) -> None:
        lower = self.settings.lower
        assert lower is not None
        write.sources = {key: self.gpu.blocks.get(key) for key in write.places}
        size = len(write.places) * self.settings.block_bytes
        write.transfer = self.start(self.writes, size, lower.write_latency_ns, write)
        self.moving.append(write)

    def land_written(self, write: Write) -> None:
        self.moving.remove(write)
        for key in write.places:
            self.land_below(key)
        if write.job is not None:
            write.job.write = None

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
