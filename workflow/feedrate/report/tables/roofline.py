"""The rate that FLOPs, bytes and launches predict for each cell, next to the measured one."""

from collections import defaultdict

import msgspec

from feedrate.report import markup, text
from feedrate.report.markup import Field, Markup, cell_table, join, noted, word
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs

NEEDS = ("cells", "predicted")
ORDER = 125


class Work(msgspec.Struct, frozen=True):
    """The FLOPs of a sample of a model: of training, and of the forward pass by part."""

    model: str
    forward: dict[str, float]
    flops: float


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of predicted.json."""

    device: str = ""
    cell: str = ""
    samples_per_s: float | None = None
    multiply_s: float | None = None
    move_s: float | None = None
    launch_s: float | None = None
    work: Work | None = None
    why: str = "it was not predicted"


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each tried cell: the parts of its predicted step, and both rates."""
    predictions = inputs.json("predicted.json", list[Prediction])
    of = defaultdict(Prediction, {(one.device, one.cell): one for one in predictions})

    def predicted(cell: CellRow) -> str:
        one = of[cell.key]
        rate = one.samples_per_s
        return text.number(rate) if rate else noted(word("no prediction"), one.why)

    def share(cell: CellRow, rate: float | None) -> str:
        expected = of[cell.key].samples_per_s
        return text.share(rate / expected if rate and expected else None)

    columns: dict[str, Field] = {
        "FLOPs (s)": lambda cell: text.number(of[cell.key].multiply_s, 3),
        "Memory (s)": lambda cell: text.number(of[cell.key].move_s, 3),
        "Launches, meanwhile (s)": lambda cell: text.number(of[cell.key].launch_s, 3),
        "Predicted (samples/s)": predicted,
        "Measured (samples/s)": lambda cell: text.number(cell.samples_per_s),
        "Measured / predicted": lambda cell: share(cell, cell.samples_per_s),
        "Model-only / predicted": lambda cell: share(cell, cell.model_samples_per_s),
        "Limited by": lambda cell: cell.verdict or text.DASH,
    }
    tried = cell_table(settings, inputs.tried(settings.study), columns)
    works = {one.work.model: one.work for one in predictions if one.work}
    return join(tried, *(_by_part(one) for one in works.values()))


def _by_part(work: Work) -> Markup:
    """A row for each part of a model, and the whole: the FLOPs of a sample."""
    whole = sum(work.forward.values())
    amounts = {**work.forward, "Forward pass": whole, "Training": work.flops}
    shown = {n: (text.number(one / 1e9), text.share(one / whole)) for n, one in amounts.items()}
    rows = [markup.row(name, *fields) for name, fields in shown.items()]
    heads = [f"A sample of {work.model}", "GFLOPs", "Relative to a forward pass"]
    return markup.table(heads, rows)
