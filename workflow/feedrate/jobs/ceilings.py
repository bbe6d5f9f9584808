"""The ceilings of a run, measured in the same job after training: loader-only, model-only and
all-reduce throughput."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import torch

from feedrate.config.settings import TrainSettings
from feedrate.config.spec import RunSpec
from feedrate.core.processes import cpu_time_s
from feedrate.devices.base import Adapter
from feedrate.jobs import events
from feedrate.jobs.events import EventLog
from feedrate.jobs.meter import batch_length
from feedrate.jobs.worker import classify
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.path import LoadingPath
from feedrate.models.layers import stop_exchanges

WARMUP_STEPS = 2
"""Steps of `model_alone` before its clock starts."""
MOST_ROUNDS = 50
"""Maximum number of timed exchanges of all gradients."""


class EndlessBatches:
    """Batch sampler that shuffles again after the last row, so that no epoch stops its workers."""

    def __init__(self, rows: int, batch_size: int, seed: int) -> None:
        self._rows, self.batch_size = rows, batch_size
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[list[int]]:
        """Lists of row numbers, without end; an incomplete batch is dropped, as in training."""
        while True:
            order = torch.randperm(self._rows, generator=self._generator).tolist()
            for start in range(0, self._rows - self.batch_size + 1, self.batch_size):
                yield order[start : start + self.batch_size]


def measure_ceilings(
    spec: RunSpec, adapter: Adapter, log: EventLog, trainer: Any, dataset: PairDataset
) -> None:
    """Write a `ceiling` event for each part, or a `note` if its measurement fails.

    All ranks take part at the same time.
    """
    measures: dict[str, Any] = {"loader": loader_alone}
    # Sharded ranks cannot compute separately: they would have to stay in step.
    if spec.settings.train.strategy != "fsdp":
        measures["model"] = model_alone
        if trainer.args.world_size > 1:
            measures["exchange"] = exchange_alone
    for kind, measure in measures.items():
        # Ranks that begin together share the host as they do in training.
        trainer.accelerator.wait_for_everyone()
        try:
            ceiling = measure(spec, adapter, trainer, dataset)
        except Exception as error:
            failure = classify(error)
            log.write(
                events.Note(
                    rank=log.rank,
                    about=f"ceiling {kind}",
                    type=failure.type,
                    message=failure.message,
                    out_of_memory=failure.out_of_memory,
                )
            )
        else:
            log.write(events.Ceiling(rank=log.rank, kind=kind, **ceiling))


def loader_alone(
    spec: RunSpec, adapter: Adapter, trainer: Any, dataset: PairDataset
) -> dict[str, Any]:
    """Drain the run's loading path for `ceiling_s`; no model runs."""
    seed = spec.seed + trainer.args.process_index
    size, seconds = spec.settings.train.batch_size, spec.protocol.ceiling_s
    return drain(trainer.path, dataset, size, seed, seconds, adapter)


def drain(
    path: LoadingPath,
    dataset: PairDataset,
    batch_size: int,
    seed: int,
    seconds: float,
    adapter: Adapter,
) -> dict[str, Any]:
    """Move batches to the device for `seconds` and drop them; returns the keys of a `ceiling`.

    The clock starts when every worker has delivered a batch: by then each has more batches ready,
    which would count as made in no time. Whole rounds are counted for the same reason. `startup_s`
    is the time until the clock starts. `cpu_s` is the CPU time of this process and its workers
    while the clock runs.
    """
    round_size = path.round_size
    order = EndlessBatches(len(dataset), batch_size, seed)
    created_s = perf_counter()
    batches = (_placed(batch, adapter.device) for batch in path.batches(dataset, order))
    for _ in range(round_size):
        next(batches)
    adapter.synchronize()  # the copies of the first batches end before the clock starts
    start_s, used_s = perf_counter(), cpu_time_s()
    samples, wall_s = 0, 0.0
    while wall_s < seconds:
        samples += sum(batch_length(next(batches)) for _ in range(round_size))
        adapter.synchronize()  # counted batches must also have been copied
        wall_s = perf_counter() - start_s
    return {
        "samples": samples,
        "wall_s": wall_s,
        "cpu_s": cpu_time_s() - used_s,
        "startup_s": start_s - created_s,
    }


def model_alone(
    spec: RunSpec, adapter: Adapter, trainer: Any, dataset: PairDataset
) -> dict[str, Any]:
    """Train on one batch that stays on the device, for about `ceiling_s`; nothing is loaded.

    Ranks exchange nothing, so one that fails leaves no other waiting.
    """
    train = spec.settings.train
    rows = [dataset[i % len(dataset)] for i in range(train.batch_size)]
    batch = _placed(collate(rows), adapter.device)
    trainer.meter = None
    stop_exchanges(trainer.model)

    for _ in range(WARMUP_STEPS):
        _optimizer_step(train, adapter, trainer, batch)
    adapter.synchronize()  # the warm-up's work ends before the clock starts
    start_s, used_s, steps = perf_counter(), cpu_time_s(), 0
    while not steps or perf_counter() - start_s < spec.protocol.ceiling_s:
        _optimizer_step(train, adapter, trainer, batch)
        steps += 1
    adapter.synchronize()  # the device may be steps behind; its work counts too
    wall_s = perf_counter() - start_s
    return {
        "samples": steps * train.batch_size * train.gradient_accumulation,
        "wall_s": wall_s,
        "cpu_s": cpu_time_s() - used_s,
    }


def exchange_alone(
    spec: RunSpec,
    adapter: Adapter,
    trainer: Any,
    dataset: PairDataset,  # noqa: ARG001
) -> dict[str, Any]:
    """All-reduce tensors of the size of a step's gradients, in the strategy's parts, for about
    `ceiling_s`; nothing is computed. `samples` are those of the same number of steps.

    All ranks take the same memory and make the same number of rounds, so that none is left waiting.
    """
    train = spec.settings.train
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    numbers = sum(p.numel() for p in trained)
    dtype, part_mb = adapter.exchanged(spec.settings, trained[0].dtype)
    size = numbers if part_mb is None else min(numbers, part_mb * 2**20 // dtype.itemsize)
    part = torch.zeros(size, dtype=dtype, device=adapter.device)

    def exchange() -> float:
        start_s = perf_counter()
        for begin in range(0, numbers, size):
            torch.distributed.all_reduce(part[: min(size, numbers - begin)])
            adapter.end_of_step()
        adapter.synchronize()  # the call returns before the exchange has ended
        return perf_counter() - start_s

    exchange()
    slowest_s = torch.tensor(exchange(), device=adapter.device)
    # The ranks must agree on the number of rounds.
    torch.distributed.all_reduce(slowest_s, torch.distributed.ReduceOp.MAX)
    rounds = max(1, min(MOST_ROUNDS, int(spec.protocol.ceiling_s / slowest_s.item())))
    used_s = cpu_time_s()
    wall_s = sum(exchange() for _ in range(rounds))
    return {
        "samples": rounds * train.batch_size * train.gradient_accumulation,
        "wall_s": wall_s,
        "cpu_s": cpu_time_s() - used_s,
    }


def _optimizer_step(
    train: TrainSettings, adapter: Adapter, trainer: Any, batch: dict[str, Any]
) -> None:
    """One step of the Trainer's loop, without exchanging gradients.

    With several ranks, training is therefore slower than this by its communication (or its data).
    """
    model, accelerator = trainer.model_wrapped, trainer.accelerator
    for _ in range(train.gradient_accumulation):
        with accelerator.no_sync(model=model):
            trainer.training_step(model, batch)
        adapter.end_of_step()
    adapter.update(trainer)
    adapter.end_of_step()


def _placed(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The batch with its tensors on the device."""
    return {
        name: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }
