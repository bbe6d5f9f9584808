"""How often the product names the limit of a run whose limit is known."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from benchmarks.lab.faults import Case, Laboratory

COSTLY = 0.10
"""Share of the clean throughput from which a fault must be named."""
NEIGHBOURS = 2
"""Clean runs before and after a run, of the same setup, that it is compared with."""
NO_ANSWER = ("mixed", "undecided", "")
"""Verdicts that name no limit."""
WAIT_SHARE = 0.10
"""The plain timer says input-bound from this data-wait share."""


class Result(msgspec.Struct, kw_only=True):
    """One run: what was planted, what it cost, and what was said of it."""

    name: str
    setup: str
    kind: str = ""
    """Empty for a clean run."""
    grade: int = 0
    half: str = ""
    status: str = "ok"
    samples_per_s: float | None = None
    cost: float | None = None
    """Share of the clean throughput that is lost; 1 for a run that ran out of memory."""
    answer: str = ""
    """The verdict, or `disturbed`, or the status of a run without a verdict."""
    why: str = ""
    others: dict[str, str] = {}
    """The answers of other tools, by their names."""

    @property
    def costly(self) -> bool:
        """Whether the fault must be named."""
        return (self.cost or 0.0) >= COSTLY


class Rules(NamedTuple):
    """Which answers are right."""

    lab: Laboratory

    def right(self, result: Result, answer: str, why: str | None = None) -> bool:
        """Whether an answer is right; `why` is its sentence, None for a tool that gives none."""
        clean = {*self.lab.clean.expected, *self.lab.clean.also}
        if not result.kind:
            return answer in clean
        return self.named(result, answer, why) or (not result.costly and answer in clean)

    def named(self, result: Result, answer: str, why: str | None = None) -> bool:
        """Whether an answer is one that faults.yaml gives for the planted fault."""
        fault = self.lab.fault(result.kind)
        if answer in fault.expected:
            return True
        tells = fault.rank is None or why is None or names_rank(why, fault.rank)
        return answer in fault.also and tells

    def changes_nothing(self, kind: str) -> bool:
        """Whether a kind of fault is a control: the right answer is that of a clean run."""
        return set(self.lab.fault(kind).expected) <= set(self.lab.clean.expected)


def names_rank(why: str, rank: int) -> bool:
    """Whether a sentence names a rank."""
    return bool(re.search(rf"\brank {rank}\b", why, re.IGNORECASE))


def answer_of(cell: Mapping[str, Any]) -> str:
    """The answer of a cell's row in cells.csv, with the `failed_checks` of its run."""
    if "undisturbed" in cell["failed_checks"].split(";") or cell["noisy"] or cell["disturbed"]:
        return "disturbed"
    return cell["verdict"] or (cell["status"] if cell["status"] != "ok" else "undecided")


def timer_of(cell: Mapping[str, Any]) -> str:
    """What a plain data-wait timer would say."""
    if cell["run_wait_share"] is None:
        return str(cell["status"])
    return "input-bound" if cell["run_wait_share"] > WAIT_SHARE else "compute-bound"


def results(
    cases: Sequence[Case],
    cells: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, Mapping[str, str]],
) -> list[Result]:
    """The results of all runs in their order; `cells` has the rows, and `others` the answers of
    other tools, by the runs' names.

    A run that a check rejected has a cost, but no run is compared with a rejected clean one.
    """
    rates = {
        case.name: cells[case.name]["run_samples_per_s" if case.fault else "samples_per_s"]
        for case in cases
    }
    found = []
    for place, case in enumerate(cases):
        cell = cells[case.name]
        found.append(
            Result(
                name=case.name,
                setup=case.setup,
                kind=case.fault.kind if case.fault else "",
                grade=case.grade,
                half=case.half,
                status=cell["status"],
                samples_per_s=rates[case.name],
                cost=cost(place, cases, rates) if cell["status"] != "out_of_memory" else 1.0,
                answer=answer_of(cell),
                why=" ".join(filter(None, (cell["why"], cell["disturbed"]))),
                others={"data-wait timer": timer_of(cell), **others.get(case.name, {})},
            )
        )
    return found


def cost(place: int, cases: Sequence[Case], rates: Mapping[str, float | None]) -> float | None:
    """The share of throughput that the run at `place` lost, against the clean runs of its setup
    just before and after it. None where either is unknown."""

    def clean(side: Iterable[Case]) -> list[float]:
        same = (c for c in side if c.fault is None and c.setup == cases[place].setup)
        return [rate for case in same if (rate := rates[case.name])][:NEIGHBOURS]

    beside = clean(reversed(cases[:place])) + clean(cases[place + 1 :])
    own = rates[cases[place].name]
    return 1 - own / median(beside) if own and beside else None


class Score(NamedTuple):
    """How one tool did."""

    right: int
    of: int
    unanswered: int

    @property
    def share(self) -> float:
        """Share of right answers."""
        return self.right / self.of if self.of else 1.0

    def __str__(self) -> str:
        return f"{self.right} of {self.of} ({self.share:.0%})" if self.of else "none"


def answers(result: Result, tool: str) -> tuple[str, str | None]:
    """A tool's answer and its sentence; the tool "" is feedrate."""
    return (result.others.get(tool, ""), None) if tool else (result.answer, result.why)


def costly(found: Iterable[Result], rules: Rules, tool: str = "", half: str = "") -> Score:
    """The answers of a tool where the fault cost 10% or more, in both halves or in one."""
    chosen = [one for one in found if one.kind and one.costly and one.half == (half or one.half)]
    told = [(one, *answers(one, tool)) for one in chosen]
    right = [rules.right(*each) for each in told]
    silent = sum(each[1] in NO_ANSWER and not well for each, well in zip(told, right, strict=True))
    return Score(sum(right), len(chosen), silent)


def false_alarms(found: Iterable[Result], rules: Rules, tool: str = "") -> list[Result]:
    """The clean runs in which a tool reports a limit that does not exist."""
    clean = (one for one in found if not one.kind)
    told = ((one, *answers(one, tool)) for one in clean)
    return [
        one for one, said, why in told if said not in NO_ANSWER and not rules.right(one, said, why)
    ]


def ranks_named(found: Iterable[Result], lab: Laboratory) -> Score:
    """How often the sentence names the slow rank, where that costs 10% or more."""
    slow = [
        (one, part.rank)
        for one in found
        if one.kind and one.costly
        for part in lab.parts(lab.fault(one.kind))
        if part.rank is not None
    ]
    named = sum(names_rank(one.why, rank) for one, rank in slow)
    return Score(named, len(slow), 0)


def smallest(found: Sequence[Result], rules: Rules, kind: str, tool: str = "") -> Result | None:
    """The least severe fault of a kind that is named, as all worse ones are; None: none is."""
    severity = rules.lab.fault(kind).severity
    of_kind = (one for one in found if one.kind == kind)
    least = None
    clean = {*rules.lab.clean.expected, *rules.lab.clean.also}
    for one in sorted(of_kind, key=lambda one: severity(one.grade), reverse=True):
        said, why = answers(one, tool)
        if said in clean or not rules.named(one, said, why):
            break
        least = one
    return least


def confusion(found: Iterable[Result]) -> dict[str, Counter[str]]:
    """Answers by kind of fault, where it costs 10% or more, and of the clean runs by setup."""
    table: dict[str, Counter[str]] = {}
    for one in found:
        if not one.kind or one.costly:
            row = one.kind or f"clean: {one.setup}"
            table.setdefault(row, Counter())[one.answer or "undecided"] += 1
    return table
