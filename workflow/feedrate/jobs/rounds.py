"""The rounds after the timed window: training as in the window, and each part of it alone, in turn.

A round has a block of each kind: `live` (as in the window), `loader`, `model`, and with several
ranks `exchange`. Their order changes, and each part is compared with the live block of its round,
so a drift of the machine cancels. All this follows the saving of weights and their evaluation.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from accelerate.utils import send_to_device
from torch.profiler import record_function

from feedrate.config.spec import RunSpec, Stage
from feedrate.devices.base import Adapter
from feedrate.jobs import blocks, events
from feedrate.jobs.blocks import EndlessBatches, Part, Pipeline, needs_more
from feedrate.jobs.events import EventLog
from feedrate.jobs.worker import note_of
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.decoders import constant_of
from feedrate.loading.pixels import Batch
from feedrate.loading.stages import LOADING, STAGES, STAMP, Recorder, span
from feedrate.models.layers import stop_exchanges

BLOCKS = 12  # blocks of a kind for which `ceiling_s` is planned
STAGE_SAMPLES = 24  # in the block that times stages, if the window has so many: for percentiles
WAIT_SHARE = 0.05  # of the window, from which training waits for workers: batches come in bursts
INDEPENDENT = ("loader", "model")  # no rank waits for another in these kinds: one may fail


class CutOffError(Exception):
    """This rank failed in a block of all ranks and cannot keep step any more."""


def measure_ceilings(
    spec: RunSpec, adapter: Adapter, log: EventLog, trainer: Any, dataset: PairDataset
) -> None:
    """Write `ceiling` and `stages` events, on all ranks at the same time, or a `note` for a kind
    that fails. Raises CutOffError if other ranks would wait for this one."""
    window = trainer.meter.window
    trainer.meter = None
    wait_share = window.data_wait_s / window.wall_s if window else 1.0
    session = Session(spec, adapter, log, trainer, dataset, wait_share)
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
        self,
        spec: RunSpec,
        adapter: Adapter,
        log: EventLog,
        trainer: Any,
        dataset: PairDataset,
        wait_share: float = 1.0,
    ) -> None:
        """`wait_share`: the part of the window in which this rank waited for data."""
        self._spec, self._adapter, self._log, self._trainer = spec, adapter, log, trainer
        self._wait_share = wait_share
        self._train, self._ranks = spec.settings.train, spec.count
        self._step_samples = spec.step_samples // spec.count
        self._recorder = Recorder(spec.settings.loader.workers)
        self._process = self._recorder.attach(0)
        if not trainer.path.by_torch:  # threads that load compute in this process too
            self._process.cpu_clock = partial(float, "nan")
        self._dataset = copy(dataset)
        self._dataset.recorder = self._recorder
        self._parts: dict[str, Part] = {}
        self._failed: set[str] = set()
        self._forward_gib: float | None = None  # after the last forward pass that was recorded
        self.pipelines: list[Pipeline] = []

    def measure(self) -> None:
        """Make rounds until the parts are known precisely enough or the time is spent."""
        makers = {"live": self._live, "loader": self._loader_alone}
        # Sharded ranks cannot compute separately: they would have to stay in step.
        if self._train.strategy != "fsdp":
            makers["model"] = self._model_alone
            if self._ranks > 1:
                makers["exchange"] = self._exchange_alone
        self._wait_share = self._largest(self._wait_share)
        for kind, make in makers.items():
            self._start(kind, make)
        complete: set[str] = set()  # kinds that need no further block
        for number in count():
            first = number % len(makers)  # each round begins with another kind
            for kind in [*makers][first:] + [*makers][:first]:
                if kind not in complete and number % self._block_interval(kind) == 0:
                    self._attempt(kind, partial(self._block, kind, number))
            parts = {k: self._parts[k] for k in self._parts.keys() - self._failed - complete}
            if not self._largest(not blocks.has_ample_loader(parts)):
                complete.add("loader")
                del parts["loader"]
            walls_s = {kind: part.walls_s for kind, part in parts.items()}
            if not self._largest(needs_more(walls_s, self._spec.protocol.ceiling_s)):
                break
        if "live" not in self._failed:
            self._attempt("stages", self._stages)
            if self._spec.protocol.profile_steps:
                self._attempt("trace", self._trace)

    def _attempt(self, kind: str, action: Callable[[], float]) -> float:
        """The result of `action`, begun by all ranks together; 0 if this kind fails or has failed.
        Raises CutOffError if the others cannot go on without this rank."""
        # Ranks that begin apart would measure how long they wait for each other.
        self._trainer.accelerator.wait_for_everyone()
        try:
            return 0.0 if kind in self._failed else action()
        except Exception as error:
            note = note_of(error, f"ceiling {kind}", self._log.rank)
            self._log.write(note)
            self._failed.add(kind)
            if self._ranks > 1 and kind not in INDEPENDENT:
                raise CutOffError(f"{note.about}: {note.message}") from error
            return 0.0

    def _start(self, kind: str, make: Callable[[], Part]) -> None:
        """Make and warm up a part, and choose the steps of its blocks, the same on all ranks."""

        def start() -> float:
            part = self._parts[kind] = make()
            with part.context():
                self._repeat(part, part.warmup + self._untimed_steps(kind))
                return self._repeat(part, part.step_multiple) / part.step_multiple

        step_s = self._largest(self._attempt(kind, start))
        if kind not in self._failed:
            part, block_s = self._parts[kind], self._spec.protocol.ceiling_s / BLOCKS
            if kind == "model" and "live" in self._parts:  # with which it is compared
                block_s = max(block_s, self._parts["live"].block_s)
            bursts = max(1, round(block_s / step_s / part.step_multiple))
            part.steps = bursts * part.step_multiple
            part.block_s = part.steps * step_s

    def _block_interval(self, kind: str) -> int:
        """The rounds from one block of this kind to the next: a loader has fewer blocks if they
        must be longer than training's, because its batches come in bursts."""
        if kind != "loader" or {"live", "loader"} & self._failed:
            return 1
        ratio = self._parts["loader"].block_s / self._parts["live"].block_s
        return max(1, min(round(ratio), BLOCKS // blocks.FEWEST_ROUNDS))

    def _untimed_steps(self, kind: str) -> int:
        """Steps before a block's clock starts: equally many on ranks that exchange gradients."""
        steps = self._parts[kind].untimed_steps()
        together = kind not in INDEPENDENT and not self._trainer.path.by_torch
        return int(self._largest(steps)) if together else steps

    def _largest(self, value: float) -> float:
        """The largest value of all ranks."""
        own_value = torch.tensor([float(value)], device=self._adapter.device)
        return float(self._trainer.accelerator.gather(own_value).max())

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
        part = self._parts[kind]
        with part.context():
            self._repeat(part, self._untimed_steps(kind))
            wall_s = part.walls_s[number] = self._repeat(part, part.steps)
        samples, rank = part.steps * self._step_samples, self._log.rank
        block = events.Ceiling(rank=rank, kind=kind, round=number, samples=samples, wall_s=wall_s)
        self._log.write(block)
        return wall_s

    def _stages(self) -> float:
        """Write the time by stage, from a live block of its own, longer than the others."""
        live, loader = self._parts["live"], self._spec.settings.loader
        steps = min(self._spec.protocol.steps, math.ceil(STAGE_SAMPLES / self._step_samples))
        steps = max(2 * live.steps, math.ceil(steps / live.step_multiple) * live.step_multiple)
        # Waits between stages make other graphs, which Gaudi compiles in a first recording.
        for repeats in (live.step_multiple, steps):
            with self._stage_marks(), live.context(), self._recorder.recording():
                wall_s = self._repeat(live, repeats)
        spans = self._recorder.spans(steps, self._step_samples)
        expected = {*LOADING, "hand_over"} if loader.workers else set(LOADING)
        expected -= {*spans, *constant_of(loader.decode, "LACKS")}
        stages = events.Stages(
            rank=self._log.rank,
            steps=steps,
            seconds={stage: span["seconds"] for stage, span in spans.items()},
            spans=spans,
            not_split=[stage for stage in STAGES if stage in expected],
            forward_memory_gib=self._forward_gib,
        )
        self._log.write(stages)
        return wall_s

    def _trace(self) -> float:
        """Write a trace of live steps, in which the stages of the training process are marked."""
        live, steps = self._parts["live"], int(self._spec.protocol.profile_steps or 0)
        folder = Path(self._trainer.args.output_dir).parent
        with self._stage_marks(), live.context():
            self._repeat(live, self._untimed_steps("live"))
            blocks.write_trace(self._adapter, self._log, folder, live.step, steps)
        return 0.0

    def _part_with_loader(self, step: Callable[[Pipeline], None], warmup: int = 0) -> Part:
        """A part that is fed by a loader of its own on the run's loading path."""
        path, step_batches = self._trainer.path, self._train.gradient_accumulation
        seed = self._spec.seed + self._log.rank
        order = EndlessBatches(len(self._dataset), self._train.batch_size, seed)
        pipeline = Pipeline(path, self._dataset, order)
        self.pipelines.append(pipeline)
        return Part(
            partial(step, pipeline),
            pipeline.running,
            warmup,
            step_multiple=math.ceil(path.round_size / step_batches),
            untimed_steps=partial(pipeline.steps_ahead, step_batches),
        )

    def _live(self) -> Part:
        """Training as in the window. If it waited for workers, batches come in bursts, and the ones
        loaded early do not count. Else the workers first get as far ahead as they may."""

        def step(pipeline: Pipeline) -> None:
            batches = range(self._train.gradient_accumulation)
            self._optimizer_step([self._receive(pipeline) for _ in batches])

        part = self._part_with_loader(step, warmup=self._spec.settings.loader.prefetch_factor)
        if self._wait_share < WAIT_SHARE and self._trainer.path.by_torch:
            self.pipelines[-1].fill()
            part.warmup = part.step_multiple = 1
        return part

    def _loader_alone(self) -> Part:
        """The loading path by itself: batches are moved to the device and dropped."""

        def step(pipeline: Pipeline) -> None:
            for _ in range(self._train.gradient_accumulation):
                send_to_device(next(pipeline), self._adapter.device, non_blocking=True)

        return self._part_with_loader(step)

    def _model_alone(self) -> Part:
        """The model by itself: it trains on one batch that stays on the device."""
        rows = [self._dataset[i % len(self._dataset)] for i in range(self._train.batch_size)]
        batches = [send_to_device(collate(rows), self._adapter.device)]
        batches *= self._train.gradient_accumulation
        step = partial(self._optimizer_step, batches, exchange=False)
        return Part(step, partial(stop_exchanges, self._trainer.model), warmup=2)

    def _exchange_alone(self) -> Part:
        """All-reduces of tensors of the size of a step's gradients, in the strategy's parts."""
        adapter = self._adapter
        trained = [p for p in self._trainer.model.parameters() if p.requires_grad]
        numbers = sum(p.numel() for p in trained)
        dtype, part_mb = adapter.exchange_format(self._spec.settings, trained[0].dtype)
        size = numbers if part_mb is None else min(numbers, part_mb * 2**20 // dtype.itemsize)
        part = torch.zeros(size, dtype=dtype, device=adapter.device)

        def step() -> None:
            for begin in range(0, numbers, size):
                torch.distributed.all_reduce(part[: min(size, numbers - begin)])
                adapter.end_of_step()
            adapter.synchronize()  # the call returns before the exchange has ended

        return Part(step, warmup=1)

    @contextmanager
    def _stage_marks(self) -> Iterator[None]:
        """The stages inside a micro-step are measured separately."""
        stages: list[tuple[Any, str, Stage]] = [
            (self._trainer, "_prepare_inputs", "copy"),
            (self._trainer, "compute_loss", "forward"),
            (self._trainer.accelerator, "backward", "backward"),
        ]
        with ExitStack() as patches:
            for owner, name, stage in stages:
                spans = int(stage != "copy")  # the batch was received before
                call = partial(self._stage, stage, getattr(owner, name), spans)
                patches.enter_context(patch.object(owner, name, call))
            yield

    def _stage(
        self, name: Stage, call: Callable[..., Any], spans: int, *args: Any, **kwargs: Any
    ) -> Any:
        """The result of a call that is a stage, or (`spans`: 0) goes on with one."""
        with span(name, spans), record_function(name):  # a trace shows the stage by its name
            result = call(*args, **kwargs)
            if self._process.switch[0]:
                self._adapter.synchronize()
        if name == "forward" and self._process.switch[0]:
            self._forward_gib = self._adapter.memory().now_gib
        return result

    def _receive(self, pipeline: Pipeline) -> Any:
        """The next batch, on the device. It is handed over once it is complete and requested."""
        request_s = perf_counter()
        batch = next(pipeline)
        complete_s = batch.pop(STAMP, None)
        if complete_s is not None and self._process.switch[0]:
            self._process.add("hand_over", perf_counter() - max(request_s, complete_s))
        send = partial(send_to_device, non_blocking=self._spec.settings.loader.non_blocking)
        return self._stage("copy", send, 1, batch, self._adapter.device)

    def _optimizer_step(self, batches: Sequence[Batch], *, exchange: bool = True) -> None:
        """One step of the Trainer's loop; without `exchange`, ranks need not run in step."""
        trainer, adapter = self._trainer, self._adapter
        model = trainer.model_wrapped
        for number, batch in enumerate(batches, start=1):
            exchanges = exchange and number == len(batches)
            with nullcontext() if exchanges else trainer.accelerator.no_sync(model=model):
                trainer.training_step(model, batch)
            adapter.end_of_step()
        if exchange and self._ranks > 1 and (reduce := adapter.exchange(self._spec.settings)):
            self._stage("exchange", reduce, 1, model)
        self._stage("optimizer", adapter.update, 1, trainer)
        adapter.end_of_step()
