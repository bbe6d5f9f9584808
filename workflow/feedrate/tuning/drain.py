"""`python -m feedrate.tuning.drain`: one rank drains every loader alone, one after the other.

All ranks of a job run this at the same time, so that they share the host as in training.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.load import convert
from feedrate.config.settings import Decode, RunSpec
from feedrate.devices.base import UnsupportedError, prepare_process
from feedrate.devices.binding import bind_rank
from feedrate.devices.launch import rank_from_environment
from feedrate.files import write_json
from feedrate.tuning.advice import Loader, Refused

DRAIN_S = 2.0
WORKERS = (0, 1, 2, 4, 8)


def answer_file(folder: Path, rank: int) -> Path:
    """Where a rank leaves its rates."""
    return folder / f"loaders.rank{rank}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="feedrate.tuning.drain")
    parser.add_argument("--run", type=Path, required=True, help="folder with spec.json")
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    options = parser.parse_args(arguments)
    origin = options.run / "spec.json"
    spec = convert(json.loads(origin.read_text(encoding="utf-8")), RunSpec, str(origin))
    rank, _, local_rank, local_ranks = rank_from_environment()
    placement = bind_rank(spec.kind, local_rank, local_ranks)
    prepare_process(spec, options.run)
    found = list(drains(spec, options.data, local_rank, local_ranks, placement.granted))
    loaders = [msgspec.to_builtins(one) for one in found if isinstance(one, Loader)]
    refused = [msgspec.to_builtins(one) for one in found if isinstance(one, Refused)]
    write_json(answer_file(options.run, rank), {"loaders": loaders, "refused": refused})
    return 0


def candidates(cores: int) -> Iterator[tuple[Decode, int]]:
    """Levels and workers to try on so many cores of a rank: no more workers than cores."""
    workers = [n for n in WORKERS if n <= max(1, cores)]
    for decode in ("reference", "host"):
        yield from ((decode, n) for n in workers)
    yield from (("cache", n) for n in workers if n <= 2)
    yield "device", min(2, max(workers))


def drains(
    spec: RunSpec, prepared: Path, local_rank: int, local_ranks: int, cores: int
) -> Iterator[Loader | Refused]:
    """The rate of each loader, or why it cannot be had."""
    # Heavy, and only for a process that is where it stays.
    from feedrate.data.loading.registry import open_path
    from feedrate.devices.base import adapter
    from feedrate.models.build import build_bare
    from feedrate.train.ceilings import drain
    from feedrate.train.opening import make_dataset

    device = adapter(spec.kind, local_rank, local_ranks)
    built = build_bare(spec.settings.model, spec.settings.loader, prepared)
    for decode, workers in candidates(cores):
        one = with_loader(spec, decode=decode, workers=workers)
        try:
            path = open_path(device, one.settings.loader)
            dataset = make_dataset(one, prepared, built, "train")
            size = spec.settings.train.batch_size
            measured = drain(path, dataset, size, spec.seed + local_rank, DRAIN_S, device)
        except UnsupportedError as error:
            yield Refused(decode, f"{error}")
        else:
            rate = measured["samples"] / measured["wall_s"]
            yield Loader(decode, workers, rate, measured["startup_s"])


def with_loader(spec: RunSpec, **values: Any) -> RunSpec:
    """The same run with other loader settings."""
    loader = msgspec.structs.replace(spec.settings.loader, **values)
    settings = msgspec.structs.replace(spec.settings, loader=loader)
    return msgspec.structs.replace(spec, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
