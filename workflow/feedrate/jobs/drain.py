"""The loader-only throughput of one loader after the other, measured for `feedrate tune`. All ranks
of a job run this at the same time: they share the host as in training."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

import msgspec

from feedrate.config.settings import Decode
from feedrate.config.spec import Kind, RunSpec, ignored_settings
from feedrate.core.errors import tell
from feedrate.core.files import write_json, write_text
from feedrate.devices.cpu_time import cpu_time_s
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.worker import bind_process, classify
from feedrate.loading.watchdog import end_process_on_hang

DRAIN_S = 2.0
POLL_S = 0.01
"""Interval at which a rank looks for the others."""
WORKERS = (0, 1, 2, 4, 8)
ANSWER = "loaders.rank{}.json"
"""The file of a rank's rates."""
Meet = Callable[..., list[str]]
"""`meet_ranks` of a rank."""


class Loader(msgspec.Struct, frozen=True):
    """The loader-only throughput of a loader, drained by all ranks at the same time."""

    decode: Decode
    workers: int
    samples_per_s: float  # of all ranks together, once they are gathered
    startup_s: float  # from creating the loader to its first batches on the device
    cpu_s: float = 0.0  # per sample, of all processes; 0: not known
    scaled: bool = False
    psnr_db: float | None = None  # similarity of its pixels to the reference's; None: equal

    @property
    def name(self) -> str:
        """Its settings."""
        scaled = ", scaled_decode: true" * self.scaled
        return f"decode: {self.decode}{scaled}, workers: {self.workers}"


class Refused(msgspec.Struct, frozen=True):
    """A decode path that does not work here, or not with this number of workers or more."""

    decode: Decode
    why: str
    scaled: bool = False
    workers: int = 0


class Drained(msgspec.Struct, frozen=True):
    """The loader-only measurements of one rank, or of all ranks together."""

    loaders: list[Loader]
    refused: list[Refused]
    cores: float


class Candidate(NamedTuple):
    """A loader to try."""

    decode: Decode
    workers: int
    scaled: bool = False


def drain_loaders(run: Path, data: Path) -> None:
    """Measure all loaders on this rank.

    --run         folder with spec.json, for the rank's rates
    --data        folder of the prepared dataset
    """
    end_process_on_hang(lambda error: tell("feedrate drain", error))
    spec, placement = bind_process(run)
    rank, _, local_rank, local_ranks = rank_from_environment()
    cores = placement.cores_of_rank(local_ranks)
    meet = partial(meet_ranks, run, rank, spec.count)
    found = list(drains(spec, data, local_rank, local_ranks, cores, meet))
    loaders = [one for one in found if isinstance(one, Loader)]
    refused = [one for one in found if isinstance(one, Refused)]
    write_json(run / ANSWER.format(rank), msgspec.to_builtins(Drained(loaders, refused, cores)))


def meet_ranks(folder: Path, rank: int, ranks: int, point: str, word: str = "") -> list[str]:
    """Wait until all ranks are at `point`; return their words. If one never comes, the launcher
    ends the others."""
    files = [folder / f"{point}.rank{one}" for one in range(ranks)]
    write_text(files[rank], word)
    while not all(file.exists() for file in files):
        sleep(POLL_S)
    return [file.read_text(encoding="utf-8") for file in files]


def candidates(cores: int, kind: Kind) -> Iterator[Candidate]:
    """Decode paths and numbers of workers, at most `cores`, to try on a device of this kind."""
    workers = [n for n in WORKERS if n <= cores]
    yield from (Candidate("reference", n) for n in workers)
    yield from (Candidate("host", n, scaled) for scaled in (False, True) for n in workers)
    yield from (Candidate("cache", n) for n in workers if n <= 2)
    reading = "workers" not in ignored_settings("device", kind)
    yield Candidate("device", min(2, max(workers)) if reading else 0)


def drains(
    spec: RunSpec, prepared: Path, local_rank: int, local_ranks: int, cores: int, meet: Meet
) -> Iterator[Loader | Refused]:
    """The rate of each loader, or, once per decode path, why there is none. All ranks try the same
    at the same time: the loaders for the rank with the fewest cores."""
    # Importing torch starts its threads, so the process must be bound before.
    from feedrate.devices.base import adapter
    from feedrate.models.build import build_bare

    device = adapter(spec.kind, local_rank, local_ranks)
    built = build_bare(spec.settings.model, spec.settings.loader, prepared)
    refused = set[tuple[Decode, bool]]()
    fewest = min(map(int, meet("cores", str(cores))))
    for number, one in enumerate(candidates(fewest, spec.kind)):
        meet(f"loader{number}")
        if (one.decode, one.scaled) in refused:
            continue
        try:
            yield _measure(spec, prepared, built, device, one)
        except Exception as error:  # a decode path that fails must not end the others
            refused.add((one.decode, one.scaled))
            yield Refused(one.decode, classify(error).message, one.scaled, one.workers)


def _measure(spec: RunSpec, prepared: Path, built: Any, device: Any, one: Candidate) -> Loader:
    """Move the batches of a loader to the device for `DRAIN_S` and drop them. The clock starts when
    every worker has delivered a batch: by then each has more ready, which would count as made in no
    time. Whole rounds are counted for the same reason."""
    from accelerate.utils import send_to_device

    from feedrate.jobs.blocks import EndlessBatches
    from feedrate.jobs.job_setup import make_dataset
    from feedrate.jobs.meter import batch_length
    from feedrate.loading.path import distance, open_path

    level = {"decode": one.decode, "scaled_decode": one.scaled}
    changed = spec.changed("loader", workers=one.workers, **level)
    path = open_path(device, changed.settings.loader)
    dataset = make_dataset(changed, prepared, built, "train")
    size, seed = spec.settings.train.batch_size, spec.seed + device.local_rank
    psnr_db = distance(dataset, path).psnr_db
    order, created_s = EndlessBatches(len(dataset), size, seed), perf_counter()
    place = partial(send_to_device, device=device.device, non_blocking=True)
    batches = map(place, path.batches(dataset, order))
    for _ in range(path.round_size):
        next(batches)
    device.synchronize()  # the copies of the first batches end before the clock starts
    start_s, used_s = perf_counter(), cpu_time_s()
    samples, wall_s = 0, 0.0
    while wall_s < DRAIN_S:
        samples += sum(batch_length(next(batches)) for _ in range(path.round_size))
        device.synchronize()  # counted batches must also have been copied
        wall_s = perf_counter() - start_s
    cpu_s, startup_s = (cpu_time_s() - used_s) / samples, start_s - created_s
    rate = samples / wall_s
    return Loader(one.decode, one.workers, rate, startup_s, cpu_s, one.scaled, psnr_db)
