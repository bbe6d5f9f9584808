"""Statements of authors about their loaders: our ratios, and the workers with which they hold."""

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from feedrate.config.values import Count, Name, Positive, Strict, Text, about, read_rows
from feedrate.report import text
from feedrate.report.rows import CellRow, RunRow
from feedrate.report.study import StudyResults
from feedrate.report.table import Column, Field, Table, by_device

CLAIMS = Path(__file__).parents[1] / "loader-claims.csv"
NotStated = Literal["not stated"]
TOLERANCE = 0.05
"""Share by which a measured ratio may be below the claimed one."""
NOT_STATED = get_args(NotStated)[0]
STORAGES = ("memory", "local disk", NOT_STATED)
"""Storages of statements that the rates here can decide; they are of local files."""
EQUAL_PIXELS = 0.5
"""Levels of 255 by which the pixels of two loaders that do equal work may differ on average."""


class LoaderClaim(Strict, kw_only=True):
    """One row of loader-claims.csv: what a library's authors say of its speed, with the regime in
    which they measured it."""

    id: Annotated[Name, about("Name that is unique in the file.")]
    text: Annotated[Text, about("The statement, in few words.")]
    loader: Annotated[Name, about("Level of the factor `loader` that it is about.")]
    over: Annotated[Name, about("The level that it is compared with.")]
    ratio: Annotated[Positive, about("Rate of `loader` over that of `over`.")]
    rates: Annotated[Literal["loader", "training"], about("Of which rates it is a ratio.")]
    workers: Annotated[Count | NotStated, about("Worker processes or threads.")]
    cores: Annotated[Count | NotStated, about("Cores of the source's machine.")]
    storage: Literal["memory", "local disk", "cloud storage", NotStated]
    picture_px: Annotated[str, about("Size of its pictures, in words.")] = ""
    pixels: Annotated[str, about("What is delivered: size and type, in words.")] = ""
    edition: Annotated[str, about("As YYYY-MM; of an undated source, when it was read.")]
    source: Annotated[Text, about("Title or address of the source.")]
    note: str = ""


def claims() -> list[LoaderClaim]:
    """All statements. Raises ConfigError."""
    return read_rows(CLAIMS, LoaderClaim, CLAIMS.name)


class Statement(NamedTuple):
    """A statement as it is shown, on one device."""

    device: str
    about: Field
    claimed: Field
    here: Field
    outcome: str


def rows(study: StudyResults) -> list[Any]:
    """By device, a row for each statement, of a study that compares loaders by their workers."""
    if not {"loader", "workers"} <= study.study.factors.keys():
        return []
    statements = []
    for device in study.devices:
        runs = [run for run in study.runs if run.device == device and run.status == "ok"]
        cells = [cell for cell in study.cells if cell.device == device]
        statements += [statement(device, claim, runs, cells) for claim in claims()]
    return by_device(study, statements)


def statement(
    device: str, claim: LoaderClaim, runs: list[RunRow], cells: list[CellRow]
) -> Statement:
    """A statement: its regime, our ratios, and where it holds."""
    found = measured_ratios(claim, runs)
    shown = []
    for workers, (low, high) in found.items():
        ends = [text.ratio(low), text.ratio(high)] if high > low else [text.ratio(low)]
        shown.append(f"{workers}: {' to '.join(ends)}")
    regime = [
        f"{noun}s {value}" if isinstance(value, str) else text.counted(value, noun)
        for noun, value in (("worker", claim.workers), ("core", claim.cores))
    ]
    regime.append(f"storage {NOT_STATED}" if claim.storage == NOT_STATED else claim.storage)
    regime += filter(None, (claim.picture_px, claim.pixels))
    behind = [c for c in cells if found and c.levels["loader"] in (claim.loader, claim.over)]
    rates = f"{claim.loader} / {claim.over}"
    if claim.rates == "training":
        rates += ", in training"
    return Statement(
        device,
        Field(claim.text, [f"{claim.source}, {claim.edition}", ", ".join(regime)], behind),
        Field(text.ratio(claim.ratio), [claim.note]),
        Field("; ".join(shown) or text.DASH, [rates]),
        outcome(claim, runs, cells),
    )


def outcome(claim: LoaderClaim, runs: list[RunRow], cells: list[CellRow]) -> str:
    """Where a statement holds on a device with these valid runs, or why that is unknown."""
    if claim.storage not in STORAGES:
        return f"Cannot tell: it is about {claim.storage}, which is not measured here."
    known = {str(c.levels["loader"]): d for c in cells if (d := c.pixel_mean_abs_diff) is not None}
    one, other = known.get(claim.loader), known.get(claim.over)
    if one is not None and other is not None and one - other > EQUAL_PIXELS:
        off = f"Its pixels differ from the reference's by {one:.2g} of 255 on average."
        return f"Does not count: the work is not equal. {off}"
    return where_it_holds(claim, measured_ratios(claim, runs), cells)


def measured_ratios(claim: LoaderClaim, runs: list[RunRow]) -> dict[int, tuple[float, float]]:
    """By workers, the lowest and highest ratio of both loaders' rates, alone or in training, in the
    same repeat."""
    rate = "samples_per_s" if claim.rates == "training" else "loader_samples_per_s"
    rates: dict[tuple[str, int], dict[int, float]] = {}
    for run in runs:
        at = str(run.levels["loader"]), int(run.levels["workers"])
        if getattr(run, rate) and run.repeat:
            rates.setdefault(at, {})[run.repeat] = getattr(run, rate)
    found = {}
    for workers in sorted({workers for _, workers in rates}):
        one, other = (rates.get((name, workers), {}) for name in (claim.loader, claim.over))
        if ratios := [one[repeat] / other[repeat] for repeat in one.keys() & other.keys()]:
            found[workers] = min(ratios), max(ratios)
    return found


def where_it_holds(
    claim: LoaderClaim, found: dict[int, tuple[float, float]], cells: list[CellRow]
) -> str:
    """Whether it holds with its own workers or, if it states none, with which; or why not known."""
    if not found:
        pair = (claim.loader, claim.over)
        reasons = (c.cause for c in cells if c.levels["loader"] in pair and c.status != "ok")
        why = next(filter(None, reasons), "")
        return f"Cannot tell: this ratio was not measured. {why}".strip()
    more = ". More workers were not measured."
    if isinstance(claim.workers, int):
        if claim.workers not in found:
            return f"Cannot tell: not measured with {text.counted(claim.workers, 'worker')}."
        found, more = {claim.workers: found[claim.workers]}, "."
    wanted = claim.ratio * (1 - TOLERANCE)
    holding = [workers for workers, (low, _) in found.items() if low >= wanted]
    losing = [workers for workers, (_, high) in found.items() if high < wanted]
    unsure = [workers for workers in found if workers not in (*holding, *losing)]
    if not holding and unsure:
        return "Cannot tell: the repeats disagree."
    if not holding:
        said = f"Does not hold with {_workers(losing)}"
    else:
        only, others = " only" * bool(losing or unsure), text.listed(map(str, losing))
        said = f"Holds{only} with {_workers(holding)}" + f", not with {others}" * bool(losing)
        said += f"; with {_workers(unsure)} the repeats disagree" * bool(unsure)
    single = all(low == high for low, high in found.values())
    return said + ", from single runs" * single + more


def _workers(counts: list[int]) -> str:
    """`1 worker`, `1 and 2 workers`."""
    return f"{text.listed(map(str, counts))} worker{'s' * (counts != [1])}"


def _columns(_: StudyResults) -> list[Column]:
    return [
        Column("Statement", "about"),
        Column("Claimed", "claimed"),
        Column("Measured here, by workers", "here"),
        Column("Does it hold here?", "outcome"),
    ]


TABLES = (
    Table("loader_claims", "Where the claims hold", "source", 45, rows, _columns, align="texts"),
)
