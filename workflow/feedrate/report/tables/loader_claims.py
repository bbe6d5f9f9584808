"""What authors say of their loader's speed, with our ratios: from how many workers on it holds."""

from feedrate.config.study import LoaderClaim
from feedrate.report import text
from feedrate.report.markup import Markup, group_row, join, row, small, table
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs, RunRow

NEEDS = ("cells", "runs", "loaders")
ORDER = 45

TOLERANCE = 0.05
"""Share by which a measured ratio may be below the claimed one: `claim_tolerance` of studies."""
EQUAL_PIXELS = 0.5
"""Levels of 255 by which the pixels of two loaders that do equal work may differ on average."""

Ratio = tuple[float, float]
"""The lowest and highest ratio of the loaders' rates in one repeat."""


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """By device, a row for each statement: its regime, our ratios, and where it begins to hold."""
    runs = [run for run in inputs.runs(settings.study) if run.status == "ok"]
    cells = {(c.device, c.cell): c for c in inputs.cells(settings.study)}
    heads = ["Statement", "Claimed", "Measured here, by workers", "Does it hold here?"]
    rows: list[Markup] = []
    for device in settings.measured:
        rows.append(group_row(settings.label(device), len(heads)))
        mine = [run for run in runs if run.device == device]
        own = [cell for (name, _), cell in cells.items() if name == device]
        rows += [_statement(claim, mine, own) for claim in settings.loaders]
    return table(heads, rows, "texts")


def _statement(claim: LoaderClaim, runs: list[RunRow], cells: list[CellRow]) -> Markup:
    found = measured_ratios(claim, runs)
    shown = [
        f"{workers}: {text.ratio(low)}" + f" to {text.ratio(high)}" * (high > low)
        for workers, (low, high) in found.items()
    ]
    regime = [
        text.count(claim.workers, "worker") if claim.workers else "workers not stated",
        text.count(claim.cores, "core") if claim.cores else "cores not stated",
        *filter(None, (claim.storage, claim.picture_px, claim.pixels)),
    ]
    about = join(claim.text, small(f"{claim.source}, {claim.edition}"), small(", ".join(regime)))
    here = join("; ".join(shown) or text.DASH, small(f"{claim.loader} / {claim.over}"))
    behind = [cell for cell in cells if cell.levels["loader"] in (claim.loader, claim.over)]
    claimed = join(text.ratio(claim.ratio), small(claim.note))
    return row(about, claimed, here, outcome(claim, runs, cells), of=behind if found else [])


def outcome(claim: LoaderClaim, runs: list[RunRow], cells: list[CellRow]) -> str:
    """Where a statement holds on a device with these valid runs, or why it cannot be told."""
    return other_pixels(claim, cells) or where_it_holds(claim, measured_ratios(claim, runs), cells)


def measured_ratios(claim: LoaderClaim, runs: list[RunRow]) -> dict[int, Ratio]:
    """The ratio of both loaders' rates alone, of runs of the same repeat, by workers."""
    rates: dict[tuple[str, int], dict[int, float]] = {}
    for run in runs:
        at = str(run.levels["loader"]), int(run.levels["workers"])
        if run.loader_samples_per_s and run.repeat:
            rates.setdefault(at, {})[run.repeat] = run.loader_samples_per_s
    found: dict[int, Ratio] = {}
    for workers in sorted({workers for _, workers in rates}):
        one, other = (rates.get((name, workers), {}) for name in (claim.loader, claim.over))
        if ratios := [one[repeat] / other[repeat] for repeat in one.keys() & other.keys()]:
            found[workers] = min(ratios), max(ratios)
    return found


def where_it_holds(claim: LoaderClaim, found: dict[int, Ratio], cells: list[CellRow]) -> str:
    """From how many workers on the statement holds; or why this machine cannot decide."""
    if not found:
        reasons = [c.cause for c in cells if c.levels["loader"] == claim.loader and c.cause]
        return f"Cannot tell: not measured. {next(iter(reasons), '')}".strip()
    wanted = claim.ratio * (1 - TOLERANCE)
    holding = [workers for workers, (low, _) in found.items() if low >= wanted]
    losing = [workers for workers, (_, high) in found.items() if high < wanted]
    later = [w for w in holding if all(w > other for other in found if other not in holding)]
    if claim.workers in losing:
        return f"Does not hold with its own {text.count(claim.workers, 'worker')}."
    if later:
        return f"Holds from {text.count(min(later), 'worker')} on."
    if holding:
        return f"Holds only with {text.listed(text.count(w, 'worker') for w in holding)}."
    if len(losing) < len(found):
        return "Cannot tell: the repeats disagree."
    most = max(found)
    answer = f"Does not hold with up to {text.count(most, 'worker')}."
    beyond = claim.workers is None or claim.workers > most
    return answer + " Beyond that, this machine cannot decide." * beyond


def other_pixels(claim: LoaderClaim, cells: list[CellRow]) -> str:
    """Why the ratio does not count, if the loaders do not deliver equal pixels; else empty."""
    known = {str(cell.levels["loader"]): cell.pixel_mean_abs_diff for cell in cells}
    one, other = known.get(claim.loader), known.get(claim.over)
    if one is None or other is None or one - other <= EQUAL_PIXELS:
        return ""
    return (
        f"Does not count: the work is not equal. Its pixels are {one:.2g} of 255 off the reference."
    )
