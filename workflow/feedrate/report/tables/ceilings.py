"""Training throughput and its ceilings, with intervals and the verdict that follows."""

from functools import partial

from msgspec.structs import asdict

from feedrate.report import text
from feedrate.report.context import PageSettings
from feedrate.report.markup import Field, Markup, cell_table, noted
from feedrate.report.rows import CellRow, Inputs
from feedrate.results.verdicts import ratios

ORDER = 130


def _alone(part: str, cell: CellRow) -> Markup | str:
    """The ratio of a part alone to training in the same rounds, with its interval; and its rate."""
    ratio = ratios(asdict(cell))[part]
    if ratio is None:
        return text.DASH
    interval = text.ratio_interval(ratio.low, ratio.high) or "measured once"
    below = ""
    if part in cell.below_rate.split(";"):
        slower = ratio.high is not None and ratio.high < 1
        outrun = "another setting that computes the same trains faster"
        below = f"not a ceiling: {'slower than training' if slower else outrun}"
    rate = text.rate(getattr(cell, f"{part}_samples_per_s"))
    return noted(text.ratio(ratio.value), interval, rate, below)


EXCHANGE: dict[str, Field] = {"All-reduce alone": partial(_alone, "exchange")}
COLUMNS: dict[str, Field] = {
    "Training (samples/s)": lambda cell: text.number(cell.samples_per_s),
    "Loader alone": partial(_alone, "loader"),
    "Model alone": partial(_alone, "model"),
    **EXCHANGE,
    "Data-wait share": lambda cell: text.share(cell.data_wait_share),
    "Limited by": lambda cell: noted(cell.verdict or text.DASH, cell.why),
}


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each cell, with the verdict and the numbers behind it."""
    cells = inputs.cells(settings.study)
    return cell_table(
        settings, cells, COLUMNS, optional=EXCHANGE, recommend=True, class_="last-text"
    )
