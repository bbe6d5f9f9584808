"""The planted faults of faults.yaml, and the runs of one laboratory in their order."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import yaml

FILE = Path(__file__).with_name("faults.yaml")
ORDER_SEED = 15
Half = Literal["known", "held_out"]
How = Literal["sleep", "spin", "restart", "cap", "process", ""]


class Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A part of faults.yaml."""


class Setup(Strict, kw_only=True, frozen=True):
    """What is trained: the number of ranks, and settings beyond those of every run."""

    what: str
    count: int
    settings: dict[str, dict[str, Any]]


class Clean(Strict, kw_only=True, frozen=True):
    """The clean runs; `also` maps a further right answer to its reason."""

    runs: int
    expected: list[str]
    also: dict[str, str] = {}


class Fault(Strict, kw_only=True, frozen=True):
    """A kind of fault; names joined by `+` are planted together."""

    kind: str
    setup: str
    what: str
    grades: dict[int, Half]
    expected: list[str]
    how: How = ""
    also: dict[str, str] = {}
    rank: int | None = None
    """The only rank that is slow; None: all."""
    cores: int = 1
    """Cores that a foreign process keeps busy."""
    period_s: float = 1.0
    """It is busy for a share of each period, s."""
    during: Literal["window", "job"] = "window"
    """When it is busy."""
    settings: dict[str, dict[str, Any]] = {}

    def severity(self, grade: int) -> int:
        """Orders grades, the worst last: shorter epochs restart workers more often."""
        return -grade if self.how == "restart" else grade


class Laboratory(Strict, kw_only=True, frozen=True):
    """faults.yaml."""

    setups: dict[str, Setup]
    clean: Clean
    faults: list[Fault]

    def fault(self, kind: str) -> Fault:
        """The fault of a kind. Raises StopIteration if there is none."""
        return next(fault for fault in self.faults if fault.kind == kind)

    def parts(self, fault: Fault) -> list[Fault]:
        """The faults that are planted together: those of its names, or itself."""
        return (
            [self.fault(kind) for kind in fault.kind.split("+")] if "+" in fault.kind else [fault]
        )


class Case(NamedTuple):
    """One run of the laboratory: a clean one, or a fault at a grade."""

    setup: str
    fault: Fault | None = None
    grade: int = 0
    number: int = 0
    """Tells clean runs of a setup apart; below 0 for those that only measure a clean step."""

    @property
    def name(self) -> str:
        """Unique, and a file's name."""
        if self.fault is None:
            return f"clean-{self.setup}-{self.number}".replace("--", "-first-")
        return f"{self.fault.kind}-{self.grade}"

    @property
    def half(self) -> str:
        """known or held_out; empty for a clean run."""
        return self.fault.grades[self.grade] if self.fault else ""


def read(path: Path = FILE) -> Laboratory:
    """The faults, with today's name of a verdict: the file stays as it was committed.

    Raises msgspec.ValidationError.
    """
    text = path.read_text(encoding="utf-8").replace("memory-pressed", "memory-limited")
    return msgspec.convert(yaml.safe_load(text), Laboratory)


def order(lab: Laboratory, clean: int, kinds: Iterable[str] = (), half: str = "") -> list[Case]:
    """All runs of a laboratory with `clean` clean runs, faults and clean runs interleaved.

    The order is random, and the same in each laboratory. `kinds` and `half` choose some faults.
    """
    faulty = [
        Case(fault.setup, fault, grade)
        for fault in lab.faults
        for grade, own in fault.grades.items()
        if own == (half or own) and (not kinds or fault.kind in kinds)
    ]
    random.Random(ORDER_SEED).shuffle(faulty)
    setups = list(lab.setups)
    clean_runs = [Case(setups[n % len(setups)], number=n // len(setups)) for n in range(clean)]
    return list(interleave(clean_runs, faulty))


def interleave(first: list[Case], second: list[Case]) -> Iterator[Case]:
    """Both lists in their own order, mixed evenly."""
    places = [
        ((n + 0.5) / len(cases), case) for cases in (first, second) for n, case in enumerate(cases)
    ]
    yield from (case for _, case in sorted(places, key=lambda one: one[0]))
