"""The rounds after the timed window: training as in the window, and each part of it alone, in turn.

A round has a block of each kind: `live` (as in the window), `loader`, `model`, and with several
ranks `exchange`. Their order changes, and each part is compared with the live block of its round,
so a drift of the machine cancels. All this follows the saving of weights and their evaluation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate.utils import send_to_device

from feedrate.config.spec import RunSpec, Stage
from feedrate.devices.base import Adapter
from feedrate.devices.host import cpu_time_s
from feedrate.jobs import blocks, events
from feedrate.jobs.blocks import EndlessBatches, Part, Pipeline, in_turn, needs_more
from feedrate.jobs.events import EventLog
from feedrate.jobs.worker import note_of
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.decoders import lacks
from feedrate.loading.pixels import Batch
from feedrate.loading.stages import LOADING, STAMP, Recorder, span
from feedrate.models.layers import stop_exchanges

BLOCKS = 12
"""Blocks of a kind for which `ceiling_s` is planned."""
STAGED = 100
"""Samples in the block that times stages, if the window has so many: one in `stages.EVERY` is
recorded, which is enough for percentiles (`results.parts.FEWEST`)."""
APART = ("loader", "model")
"""Kinds in which no rank waits for another, so that one that fails leaves no other waiting."""


class CutOffError(Exception):
    """A block of all ranks has failed on this one, which cannot keep step any more."""


def measure_ceilings(
    spec: RunSpec, adapter: Adapter, log: EventLog, trainer: Any, dataset: PairDataset
) -> None:
    """Write `ceiling` and `stages` events, on all ranks at the same time, or a `note`
    for a kind that fails. Raises CutOffError if other ranks would wait for this one: its process
    then ends, and its launcher stops them; all have written their results."""
    trainer.meter = None
    session = Session(spec, adapter, log, trainer, dataset)
    try:
        session.measure()
    except CutOffError:
        # gloo tells them that a rank is gone; NCCL and HCCL wait for it until their time limit.
        if adapter.kind != "cpu":
            raise
    finally:
        for pipeline in session.pipelines:
            pipeline.close()


class Session:
    """The rounds of one rank."""

    def __init__(
        self, spec: RunSpec, adapter: Adapter, log: EventLog, trainer: Any, dataset: PairDataset
    ) -> None:
        self._spec, self._adapter, self._log, self._trainer = spec, adapter, log, trainer
        self._train, self._ranks = spec.settings.train, spec.count
        self._step_samples = spec.step_samples // spec.count
        self._recorder = Recorder(spec.settings.loader.workers)
        self._here = self._recorder.attach(0)
        if not trainer.path.by_torch:  # threads that load compute in this process too
            self._here.cpu_clock = partial(float, "nan")
        self._dataset = copy(dataset)
        self._dataset.recorder = self._recorder
        self._parts: dict[str, Part] = {}
        self._steps: dict[str, int] = {}  # of a block of each kind
        self._failed: set[str] = set()
        self._forward_gib: float | None = None  # after the last forward pass that was recorded
        self.pipelines: list[Pipeline] = []

    def measure(self) -> None:
        """Make rounds until the parts are known precisely enough or the time is spent."""
        makers: dict[str, Callable[[], Part]] = {"live": self._live, "loader": self._drained}
        # Sharded ranks cannot compute separately: they would have to stay in step.
        if self._train.strategy != "fsdp":
            makers |= {"model": self._alone}
            makers |= {"exchange": self._exchanged} if self._ranks > 1 else {}
        for kind, make in makers.items():
            self._start(kind, make)
        walls_s: dict[str, list[float]] = {kind: [] for kind in makers}
        for number in count():
            for kind in in_turn([*walls_s], number):
                if wall_s := self._attempt(kind, partial(self._block, kind, number)):
                    walls_s[kind].append(wall_s)
            known = {kind: walls for kind, walls in walls_s.items() if kind not in self._failed}
            if not self._largest(needs_more(known, self._spec.protocol.ceiling_s)):
                break
        if "live" not in self._failed:
            self._attempt("stages", self._stages)
            if self._spec.protocol.profile_steps:
                self._attempt("trace", self._trace)

    def _attempt(self, kind: str, action: Callable[[], float]) -> float:
        """The result of `action`, begun by all ranks together; 0 if this kind fails or has failed.
        Raises CutOffError if the others cannot go on without this rank."""
        self._trainer.accelerator.wait_for_everyone()
        try:
            return 0.0 if kind in self._failed else action()
        except Exception as error:
            note = note_of(error, f"ceiling {kind}", self._log.rank)
            self._log.write(note)
            self._failed.add(kind)
            if self._ranks > 1 and kind not in APART:
                raise CutOffError(f"{note.about}: {note.message}") from error
            return 0.0

    def _start(self, kind: str, make: Callable[[], Part]) -> None:
        """Make and warm up a part, and choose the steps of its blocks, the same on all ranks."""

        def start() -> float:
            part = self._parts[kind] = make()
            with part.context():
                self._repeat(part, part.warmup + self._lead(kind))
                return self._repeat(part, part.whole) / part.whole

        step_s = self._largest(self._attempt(kind, start))
        if kind not in self._failed:
            whole, block_s = self._parts[kind].whole, self._spec.protocol.ceiling_s / BLOCKS
            self._steps[kind] = max(1, round(block_s / step_s / whole)) * whole

    def _lead(self, kind: str) -> int:
        """Steps before a block's clock starts: equally many on ranks that exchange gradients."""
        steps = self._parts[kind].lead()
        together = kind not in APART and not self._trainer.path.by_torch
        return int(self._largest(steps)) if together else steps

    def _largest(self, value: float) -> float:
        """The largest value of all ranks."""
        mine = torch.tensor([float(value)], device=self._adapter.device)
        return float(self._trainer.accelerator.gather(mine).max())

    def _repeat(self, part: Part, steps: int) -> float:
        """Seconds of so many steps, with the device's work."""
        self._adapter.synchronize()  # earlier work ends before the clock starts
        start_s = perf_counter()
        for _ in range(steps):
            part.step()
        self._adapter.synchronize()  # the device may be steps behind; its work counts too
        return perf_counter() - start_s

    def _block(self, kind: str, number: int) -> float:
        """Measure a block of round `number` and write its event; returns its seconds."""
        part, steps = self._parts[kind], self._steps[kind]
        with part.context():
            self._repeat(part, self._lead(kind))
            before_s = cpu_time_s()
            wall_s = self._repeat(part, steps)
            cpu_s = cpu_time_s() - before_s
        block = events.Ceiling(
            rank=self._log.rank,
            kind=kind,
            round=number,
            samples=steps * self._step_samples,
            wall_s=wall_s,
            cpu_s=cpu_s,
        )
        self._log.write(block)
        return wall_s

    def _stages(self) -> float:
        """Write the time by stage, from a live block of its own, longer than the others."""
        live, loader = self._parts["live"], self._spec.settings.loader
        enough = min(self._spec.protocol.steps, -(-STAGED // self._step_samples))
        steps = max(2 * self._steps["live"], -(-enough // live.whole) * live.whole)
        with self._timed():  # waits between stages make other graphs, which Gaudi compiles first
            self._repeat(live, live.whole)
        with self._timed():
            wall_s = self._repeat(live, steps)
        spans = self._recorder.spans(steps, self._step_samples)
        marked = (*LOADING, "hand_over") if loader.workers else LOADING
        told = events.Stages(
            rank=self._log.rank,
            steps=steps,
            seconds={stage: one["seconds"] for stage, one in spans.items()},
            spans=spans,
            not_split=[stage for stage in marked if stage not in {*spans, *lacks(loader)}],
            forward_memory_gib=self._forward_gib,
        )
        self._log.write(told)
        return wall_s

    def _trace(self) -> float:
        """Write a trace of live steps, in which the stages of the training process are marked."""
        live, steps = self._parts["live"], int(self._spec.protocol.profile_steps or 0)
        folder = Path(self._trainer.args.output_dir).parent
        with self._staged(), live.context():
            self._repeat(live, self._lead("live"))
            blocks.write_trace(self._adapter, self._log, folder, live.step, steps)
        return 0.0

    def _fed(self, step: Callable[[Pipeline], None], warmup: int = 0) -> Part:
        """A part that is fed by a loader of its own on the run's loading path."""
        path, seed = self._trainer.path, self._spec.seed + self._log.rank
        order = EndlessBatches(len(self._dataset), self._train.batch_size, seed)
        pipeline, a_step = Pipeline(path, self._dataset, order), self._train.gradient_accumulation
        self.pipelines.append(pipeline)
        whole, lead = -(-path.round_size // a_step), partial(pipeline.ahead, a_step)
        return Part(partial(step, pipeline), pipeline.running, warmup, whole, lead)

    def _live(self) -> Part:
        """Training as in the window. What was prefetched while it started does not count."""

        def step(pipeline: Pipeline) -> None:
            batches = range(self._train.gradient_accumulation)
            self._optimizer_step([self._receive(pipeline) for _ in batches])

        return self._fed(step, warmup=self._spec.settings.loader.prefetch_factor)

    def _drained(self) -> Part:
        """The loading path by itself: batches are moved to the device and dropped."""

        def step(pipeline: Pipeline) -> None:
            for _ in range(self._train.gradient_accumulation):
                send_to_device(next(pipeline), self._adapter.device, non_blocking=True)

        return self._fed(step)

    def _alone(self) -> Part:
        """The model by itself: it trains on one batch that stays on the device."""
        rows = [self._dataset[i % len(self._dataset)] for i in range(self._train.batch_size)]
        batches = [send_to_device(collate(rows), self._adapter.device)]
        batches *= self._train.gradient_accumulation
        step = partial(self._optimizer_step, batches, exchange=False)
        return Part(step, partial(stop_exchanges, self._trainer.model), warmup=2)

    def _exchanged(self) -> Part:
        """All-reduces of tensors of the size of a step's gradients, in the strategy's parts."""
        adapter = self._adapter
        trained = [p for p in self._trainer.model.parameters() if p.requires_grad]
        numbers = sum(p.numel() for p in trained)
        dtype, part_mb = adapter.exchanged(self._spec.settings, trained[0].dtype)
        size = numbers if part_mb is None else min(numbers, part_mb * 2**20 // dtype.itemsize)
        part = torch.zeros(size, dtype=dtype, device=adapter.device)

        def step() -> None:
            for begin in range(0, numbers, size):
                torch.distributed.all_reduce(part[: min(size, numbers - begin)])
                adapter.end_of_step()
            adapter.synchronize()  # the call returns before the exchange has ended

        return Part(step, warmup=1)

    @contextmanager
    def _staged(self) -> Iterator[None]:
        """The stages inside a micro-step are measured separately."""
        trainer, calls = self._trainer, ExitStack()
        stages: list[tuple[Any, str, Stage]] = [
            (trainer, "_prepare_inputs", "copy"),
            (trainer, "compute_loss", "forward"),
            (trainer.accelerator, "backward", "backward"),
        ]
        for owner, name, of in stages:
            begins = int(of != "copy")  # the batch was received before
            setattr(owner, name, partial(self._stage, of, getattr(owner, name), begins))
            calls.callback(delattr, owner, name)
        with calls:
            yield

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Live training whose stages are timed."""
        live = self._parts["live"]
        with self._staged(), live.context(), self._recorder.recording():
            yield

    def _stage(
        self, name: Stage, call: Callable[..., Any], begins: int, *args: Any, **kwargs: Any
    ) -> Any:
        """The result of a call that is a stage, or (`begins`: 0) goes on with one."""
        with span(name, begins), blocks.marked(name):
            result = call(*args, **kwargs)
            if self._here.switch[0]:
                self._adapter.synchronize()
        if name == "forward" and self._here.switch[0]:
            self._forward_gib = self._adapter.memory().now_gib
        return result

    def _receive(self, pipeline: Pipeline) -> Any:
        """The next batch, on the device. It is handed over once it is complete and asked for."""
        asked_s = perf_counter()
        batch = next(pipeline)
        complete_s = batch.pop(STAMP, None)
        if complete_s is not None and self._here.switch[0]:
            self._here.add("hand_over", perf_counter() - max(asked_s, complete_s))
        how = {"non_blocking": self._spec.settings.loader.non_blocking}
        return self._stage("copy", send_to_device, 1, batch, self._adapter.device, **how)

    def _optimizer_step(self, batches: Sequence[Batch], *, exchange: bool = True) -> None:
        """One step of the Trainer's loop; without `exchange`, ranks need not run in step."""
        trainer, adapter = self._trainer, self._adapter
        model = trainer.model_wrapped
        for left, batch in zip(range(len(batches))[::-1], batches, strict=True):
            is_quiet = left or not exchange
            with trainer.accelerator.no_sync(model=model) if is_quiet else nullcontext():
                trainer.training_step(model, batch)
            adapter.end_of_step()
        if exchange and self._ranks > 1 and (reduce := adapter.exchange(self._spec.settings)):
            self._stage("exchange", reduce, 1, model)
        self._stage("optimizer", adapter.update, 1, trainer)
        adapter.end_of_step()
