"""Run the benchmarks: all of them, or those whose names are given."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from benchmarks import answers, coverage, faults, loading, meter, overhead, planning
from benchmarks.figure import Figure
from feedrate.core.files import write_json

LATEST = Path(__file__).parent / "latest.json"
# A process started here starts with this one's memory as its peak: torch comes last.
BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "coverage": coverage.measure,
    "answers": answers.measure,
    "planning": planning.measure,
    "overhead": overhead.measure,
    "meter": meter.measure,
    "loading": loading.measure,
    "faults": faults.measure,
}


def main(names: list[str]) -> int:
    """Print a table, write benchmarks/latest.json; exit code 1 if a goal is not met."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
        return 2
    figures: list[Figure] = []
    print(f"{'benchmark':58} {'value':>9} {'goal':>9}  unit      holds")
    for figure in chain.from_iterable(BENCHMARKS[name]() for name in names or BENCHMARKS):
        print(figure, flush=True)
        figures.append(figure)
        # After each, so that an interrupted run keeps its figures.
        write_json(LATEST, [{**asdict(f), "holds": f.holds} for f in figures])
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
