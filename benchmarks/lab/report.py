"""The laboratory's tables in Markdown, for docs/measurement-lab.md."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.lab.faults import Laboratory
from benchmarks.lab.score import (
    COSTLY,
    Result,
    Rules,
    confusion,
    costly,
    false_alarms,
    ranks_named,
    smallest,
)


def tools_of(found: Iterable[Result]) -> list[str]:
    """The tools that answered for at least one run: feedrate (as an empty name), then others."""
    return ["", *dict.fromkeys(tool for one in found for tool in one.others)]


def markdown(found: Sequence[Result], lab: Laboratory, about: str) -> str:
    """All tables; `about` says when and where the runs took place."""
    rules = Rules(lab)
    parts = [
        about,
        *table(summary(found, rules)),
        "Smallest fault that is named, as all larger ones of its kind are (per cent of a clean "
        "step, or as faults.yaml says; in brackets the throughput that it costs):",
        *table(thresholds(found, rules)),
        f"Answers to runs whose fault cost {COSTLY:.0%} of the throughput or more, and to clean "
        "runs. Bold: right.",
        *table(matrix(found, rules)),
        *mistakes(found, rules),
    ]
    return "\n".join(parts)


def table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table with an empty line at both ends; the first row is its heading."""
    yield ""
    for place, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if place == 0:
            yield "|" + " --- |" * len(row)
    yield ""


def summary(found: Sequence[Result], rules: Rules) -> Iterator[list[str]]:
    """How each tool did."""
    tools = tools_of(found)
    yield ["", *(tool or "feedrate" for tool in tools)]
    for half in ("", "known", "held_out"):
        name = f"right where the fault costs {COSTLY:.0%}" + f", {half.replace('_', ' ')}" * bool(
            half
        )
        yield [name, *(str(costly(answered(found, t), rules, t, half)) for t in tools)]
    silent = (costly(answered(found, tool), rules, tool).unanswered for tool in tools)
    yield ["of those wrong: mixed or undecided", *map(str, silent)]
    clean = [sum(not one.kind for one in answered(found, tool)) for tool in tools]
    alarms = [len(false_alarms(answered(found, tool), rules, tool)) for tool in tools]
    pairs = zip(alarms, clean, strict=True)
    yield ["false alarms in clean runs", *(f"{some} of {all_}" for some, all_ in pairs)]
    named = ["not counted"] * (len(tools) - 1)
    yield ["slow rank named", str(ranks_named(found, rules.lab)), *named]


def answered(found: Iterable[Result], tool: str) -> list[Result]:
    """The runs for which a tool answered."""
    return [one for one in found if not tool or tool in one.others]


def thresholds(found: Sequence[Result], rules: Rules) -> Iterator[list[str]]:
    """The smallest fault of each kind that each tool names."""
    tools = tools_of(found)
    yield ["fault", *(tool or "feedrate" for tool in tools)]
    for fault in rules.lab.faults:
        if not rules.changes_nothing(fault.kind) and any(one.kind == fault.kind for one in found):
            least = (smallest(answered(found, tool), rules, fault.kind, tool) for tool in tools)
            yield [f"{fault.kind}: {fault.what}", *(grade(one) for one in least)]


def grade(result: Result | None) -> str:
    """A grade and its cost."""
    if result is None:
        return "none"
    return f"{result.grade}%" + (f" ({result.cost:.0%})" if result.cost is not None else "")


def matrix(found: Sequence[Result], rules: Rules) -> Iterator[list[str]]:
    """The confusion matrix of feedrate's answers."""
    rows = confusion(found)
    said = sorted({answer for row in rows.values() for answer in row})
    yield ["planted", *said]
    right = {
        (name_of(one), one.answer or "undecided")
        for one in found
        if rules.right(one, one.answer, one.why)
    }
    for name, counts in sorted(rows.items()):
        # An answer may be right for faults that cost little, which are not counted here.
        well = {answer: (name, answer) in right and counts[answer] for answer in said}
        yield [name, *(f"**{counts[a]}**" if well[a] else str(counts[a] or "") for a in said)]


def name_of(result: Result) -> str:
    """The row of a run in the confusion matrix."""
    return result.kind or f"clean: {result.setup}"


def mistakes(found: Sequence[Result], rules: Rules) -> Iterator[str]:
    """Each wrong answer with its sentence, and each false alarm."""
    wrong = [
        one
        for one in found
        if one.kind and one.costly and not rules.right(one, one.answer, one.why)
    ]
    for title, some in (("Wrong answers", wrong), ("False alarms", false_alarms(found, rules))):
        yield f"{title}: {len(some) or 'none'}."
        yield ""
        for one in some:
            lost = "" if one.cost is None else f", cost {one.cost:.0%}"
            yield f"- {one.name} ({one.half or 'clean'}{lost}): {one.answer}. {one.why}"
        yield ""
