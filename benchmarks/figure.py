"""One figure of a benchmark, and how figures are printed and kept."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from feedrate.core.files import write_json

LATEST = Path(__file__).parent / "latest.json"


@dataclass(frozen=True)
class Figure:
    """A measured value and its goal (`at_most`: smaller is better)."""

    name: str
    value: float
    goal: float
    unit: str
    note: str = ""
    at_most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the goal is met."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def show(figures: Iterable[Figure]) -> Iterator[Figure]:
    """Print each figure as it comes, and yield it."""
    print(f"{'benchmark':58} {'value':>9} {'goal':>9}  unit      holds")
    for figure in figures:
        sign = "<=" if figure.at_most else ">="
        print(
            f"{figure.name:58} {figure.value:9.3f} {sign}{figure.goal:7.3g}  {figure.unit:9} "
            f"{'yes' if figure.holds else 'NO'}{'  ' + figure.note if figure.note else ''}",
            flush=True,
        )
        yield figure


def keep(figures: list[Figure], path: Path = LATEST) -> None:
    """Write the figures as a list of name, value, goal, unit, holds."""
    rows = [{**asdict(f), "holds": f.holds} for f in figures]
    write_json(path, json.loads(json.dumps(rows)))
