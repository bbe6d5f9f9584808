"""The table with a row for each cell, grouped by device, that several kinds of table share."""

from collections.abc import Callable, Collection, Iterable, Mapping

from feedrate.report import text
from feedrate.report.markup import Markup, group_row, join, row, small, table, wide_row, word
from feedrate.report.params import StudyContext
from feedrate.report.rows import CellRow

Field = Callable[[CellRow], str]
"""The content of a column for one cell."""


def cell_table(
    study: StudyContext,
    cells: Iterable[CellRow],
    columns: Mapping[str, Field],
    *,
    optional: Collection[str] = (),
    headings: Mapping[str, str] | None = None,
    recommend: bool = False,
    class_: str = "",
) -> Markup:
    """A row for each cell that was tried; then, by cause, the cells that a device does not support.

    A column in `optional` is left out where no cell has a value. `headings` follow the names of
    devices. `recommend` highlights recommended cells.
    """
    cells = list(cells)
    empty = {
        head
        for head in optional
        if head in columns and all(columns[head](cell) == text.DASH for cell in cells)
    }
    columns = {head: field for head, field in columns.items() if head not in empty}
    width = 1 + len(columns)
    rows: list[Markup] = []
    for device in study.measured:
        mine = [cell for cell in cells if cell.device == device]
        rows.append(group_row(study.label(device) + (headings or {}).get(device, ""), width))
        for cell in mine:
            name = text.values_text(cell.levels)
            if cell.samples_per_s is not None:
                use = "use" * (recommend and cell.recommended)
                rows.append(row([name, *(field(cell) for field in columns.values())], use))
            elif cell.status != "unsupported":
                reason = join(word(text.STATUS_WORDS[cell.status]), small(cell.cause))
                rows.append(wide_row(name, reason, width))
        rows += _unsupported_rows(mine, width)
        if not mine:
            rows.append(wide_row("all", word(text.STATUS_WORDS["absent"]), width))
    return table([study.factor_labels, *columns], rows, class_)


def _unsupported_rows(cells: Iterable[CellRow], width: int) -> list[Markup]:
    """A row for each cause, with its cells."""
    groups = text.grouped((c for c in cells if c.status == "unsupported"), lambda c: c.cause)
    return [
        wide_row(
            "/",
            join(
                word(text.count(len(group), "cell") + " not supported"),
                small(f"{cause} {'; '.join(text.values_text(cell.levels) for cell in group)}."),
            ),
            width,
        )
        for cause, group in groups.items()
    ]


def throughput(cell: CellRow) -> Markup:
    """Throughput with its interval, and a flag where the cell learns something else."""
    interval = small(text.interval(cell.ci_low, cell.ci_high))
    return join(text.number(cell.samples_per_s), interval, small(loss_flag(cell)))


def speedup(cell: CellRow) -> Markup:
    """The ratio to the baseline's throughput, with its interval."""
    interval = text.ratio_interval(cell.speedup_ci_low, cell.speedup_ci_high)
    return join(text.ratio(cell.speedup), small(interval))


def loss_flag(cell: CellRow) -> str:
    """How far the loss departs from the baseline's, where seeds do not explain it; else empty."""
    if not cell.loss_departs or cell.loss_shift is None or cell.loss_seeds is None:
        return ""
    return (
        f"different quality: loss {cell.loss_shift:+.3f} from the baseline's, "
        f"effect of seeds {cell.loss_seeds:.3f}"
    )


SPEED: dict[str, Field] = {
    "Throughput (samples/s)": throughput,
    "Speed-up over the baseline": speedup,
}
MEMORY: dict[str, Field] = {
    "Peak memory (GiB)": lambda cell: text.number(cell.peak_memory_gib, 3),
}
MFU: dict[str, Field] = {"MFU": lambda cell: text.share(cell.mfu)}
COSTS: dict[str, Field] = {
    "Energy (J/sample)": lambda cell: text.number(cell.energy_j_per_sample, 3),
    "USD per million samples": lambda cell: text.number(cell.usd_per_million_samples, 3),
}
