"""The workers, caches and links of one timed replay, built from a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.replays.linklayout import link_layout
from kvbench.replays.tiers import TieredCore
from kvbench.replays.timed import TimedReplay
from kvbench.replays.timedfacts import LinkFacts, LinkSample, RunFacts, TimedSample, WorkerFacts, WorkerSample
from kvbench.serving.clock import Clock
from kvbench.serving.compute import ComputeContext, ComputeModel
from kvbench.serving.link import Link
from kvbench.serving.links import Transfers
from kvbench.serving.mover import Mover
from kvbench.serving.traffic import Traffic
from kvbench.serving.worker import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from kvbench.replays.keyed import KeyedTrace
    from kvbench.replays.plan import Plan


class TimedCore(TieredCore):
    """As :class:`TieredCore`, on the clock.

    ``timed_samples``  what was sampled since it was last emptied.
    """

    def __init__(
        self, plan: Plan, keyed: KeyedTrace, capacities: list[int | None], *, keep_events: bool = False
    ) -> None:
        super().__init__(plan, keyed, capacities, keep_events=keep_events)
        assert plan.serving is not None
        self._check_gpu()
        self._check_partials()
        self.serving = plan.serving
        self.timed_samples: list[TimedSample] = []
        for stack in self.stacks:
            stack.keep_time()
        self._layout = link_layout(plan, plan.config.workers)
        self.links = [
            Link(
                f"{facts.name} {facts.direction}",
                facts.bandwidth_bytes_per_s,
                facts.latency_ns,
                facts.sharing,
                facts.concurrent_operations or 0,
                facts.store,
            )
            for facts in self._layout.links
        ]
        self._transfers = Transfers(self.links)
        self._traffic = Traffic(Clock(), self._transfers)
        self._observer = self.replay.recorder
        self.workers = [self._make_worker(number) for number in range(plan.config.workers)]
        self.replay.employ(
            self._traffic,
            self.workers,
            concurrency=self.serving.arrivals.concurrency or 0,
            stop_ns=self.serving.stop.time_ns,
            stall_steps=self.serving.stop.stall_steps,
            sample_ns=self.serving.sample_ns,
            sampler=self.take_sample,
        )

        self._plan_faults()

    def _plan_faults(self) -> None:
        """Have faults begin and end by the clock."""
        edges = set()
        for number, fault in enumerate(self._faults.faults, 1):
            where = f"{self.plan.config.faults}: fault {number}"
            if fault.kind == "restart":
                raise ConfigError(f"{where}: restart goes with order replay; on the clock give freeze or unhealthy")
            if fault.from_request is not None or fault.to_request is not None:
                raise ConfigError(f"{where}: a timed replay has a clock; give from_s and to_s")
            edges |= {fault.start_ns, fault.end_ns}
        if edges:
            self._set_faults(0, 0)
            times_ns = sorted(time_ns for time_ns in edges if time_ns)
            self.replay.call_at(times_ns, lambda time_ns: self._set_faults(0, time_ns))

    @property
    def replay(self) -> TimedReplay:
        """The compiled loop."""
        assert isinstance(self._replay, TimedReplay)
        return self._replay

    def _make_replay(self, *, keep_events: bool) -> TimedReplay:
        return TimedReplay(
            self.stacks, dispatcher=self.dispatcher, log=self.log, seen=self._seen, keep_events=keep_events
        )

    def _check_gpu(self) -> None:
        """Running requests must find room in the first tier."""
        gpu = self.tiers[0]
        if gpu.config.high is not None:
            raise ConfigError(
                f"{gpu.config.setting}: high has no effect on the first tier of a timed replay: running requests need "
                "room at once"
            )
        if any(
            store.capacity is not None and store.policy is not None and store.policy.never_evicts
            for store in self.stores[0]
        ):
            raise ConfigError(
                f"{gpu.config.setting}: it never evicts (policy keep, or placement spill), so running requests find no "
                "room in it; put a tier in front that does"
            )

    def _check_partials(self) -> None:
        """A request holds its partial last block itself, as long as it runs."""
        for level, tier in enumerate(self.tiers):
            partial = tier.config.partial
            if partial == "in-turn" or (partial == "first" and level > 0):
                raise ConfigError(
                    f"{tier.config.setting}: partial = {partial} has no effect in a timed replay: running requests "
                    "hold their partial last block in the first tier, and its place is free when they end; leave it out"
                )

    def _make_worker(self, number: int) -> Worker:
        config, serving = self.plan.config, self.serving.worker
        models: Path | None = None
        if config.models is not None:
            from pathlib import Path

            models = Path(config.models)
        context = ComputeContext(model=config.model, tp=config.tp, kv_dtype=config.kv_dtype, models_file=models)
        compute = self.serving.compute.make(context)
        if not isinstance(compute, ComputeModel):
            raise ConfigError(
                f"compute model {self.serving.compute.spec.name} made a {type(compute).__name__}, which is no "
                "kvbench.serving.compute.ComputeModel"
            )
        tiers = self._layout.tiers
        mover = Mover(
            self.stacks[number],
            self._traffic,
            self._observer,
            compute,
            block_tokens=self.serving.block_tokens,
            chunk_bytes=[tier.chunk_bytes for tier in tiers],
            reads=[self._path(tier.reads[number], serial=tier.serial) for tier in tiers],
            writes=[self._path(tier.writes[number], serial=tier.serial) for tier in tiers],
            log=self.log,
            share=serving.share,
            cheaper=serving.load == "cheaper",
        )
        return Worker(
            number,
            mover,
            self._traffic,
            self._observer,
            compute,
            batch_tokens=serving.batch_tokens,
            sequences=serving.sequences,
            fetches=serving.fetches,
            chunked=serving.chunked,
            blocking=serving.store == "blocking",
            decodes=serving.decode,
            step_overhead_ns=serving.step_overhead_ns,
            rebuild_ns=serving.rebuild_ns,
        )

    def _path(self, links: tuple[int, ...], *, serial: bool) -> int:
        return self._transfers.add_path(list(links), pipelined=not serial) if links else -1

    # -- what there is to see ------------------------------------------------------------------

    def take_sample(self, time_ns: int) -> None:
        """Note how everything is now."""
        self.replay.observe_links()
        self.timed_samples.append(
            TimedSample(
                self.replay.arrived,
                time_ns,
                self.store_states(),
                [self._worker_sample(worker) for worker in self.workers],
                [
                    LinkSample(link.name, link.store, link.moved_bytes, link.busy_ns, link.in_flight)
                    for link in self.links
                ],
            )
        )

    def _worker_sample(self, worker: Worker) -> WorkerSample:
        gpu = self.stores[0][worker.number * self.tiers[0].ranks]
        return WorkerSample(
            worker.number,
            *worker.states,
            private_blocks=gpu.held_back * self.tiers[0].config.chunk,
            steps=worker.steps,
            busy_ns=worker.busy_ns,
            recent_ttft_ns=worker.recent_ttft_ns,
        )

    def facts(self, stop: str) -> RunFacts:
        """What the whole run was, which ended because of ``stop`` unless the loop itself ended it."""
        self.replay.observe_links()
        stopped = self.replay.stopped or stop
        limit_ns = self.serving.stop.time_ns
        # Where the limit let in no more, nothing may have happened up to it.
        now_ns = limit_ns if stopped == "time limit" and limit_ns is not None else self.replay.now_ns
        return RunFacts(
            now_ns,
            stopped,
            [
                WorkerFacts(
                    each.number,
                    each.steps,
                    each.busy_ns,
                    each.prefill_tokens,
                    each.decode_tokens,
                    each.preemptions,
                    each.rebuilds,
                )
                for each in self.workers
            ],
            [
                LinkFacts(
                    link.name,
                    link.store,
                    link.moved_bytes,
                    link.busy_ns,
                    link.operations,
                    link.bandwidth_bytes_per_s,
                )
                for link in self.links
            ],
            self._diagnosis() if stopped == "no progress" else None,
            self._traffic.lost_chunks,
        )

    def _diagnosis(self) -> str:
        """Where a run stands that does not go on."""
        lines = []
        for worker in self.workers:
            waiting, fetching, ready, prefilling, decoding = worker.states
            if waiting + fetching + ready + prefilling + decoding == 0:
                continue
            gpu = self.stores[0][worker.number * self.tiers[0].ranks]
            total = "any number" if gpu.capacity is None else f"{gpu.capacity + gpu.held_back:,}"
            lines.append(
                f"worker {worker.number}: {waiting} waiting, {fetching} fetching, {ready} ready, {prefilling} "
                f"prefilling, {decoding} decoding; {worker.preemptions:,} preemptions; of {total} GPU chunks "
                f"{gpu.pinned:,} are pinned and {gpu.held_back:,} private"
            )
        return "; ".join(lines)
