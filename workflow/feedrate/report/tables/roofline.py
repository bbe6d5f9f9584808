"""The rate that FLOPs, bytes and launches predict for each cell, next to the measured one."""

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.report import text
from feedrate.report.markup import Field, Markup, as_page, cell_table, join, small, word
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs

NEEDS = ("cells", "predicted")
ORDER = 125


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of predicted.json."""

    device: str
    cell: str
    samples_per_s: float | None = None
    multiply_s: float | None = None
    move_s: float | None = None
    launch_s: float | None = None
    why: str = ""


@as_page
def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each tried cell: the parts of its predicted step, and both rates."""
    known = {(one.device, one.cell): one for one in read_predictions(inputs)}
    none = Prediction(device="", cell="", why="it was not predicted")

    def of(cell: CellRow) -> Prediction:
        return known.get(cell.key, none)

    def predicted(cell: CellRow) -> Markup:
        if of(cell).samples_per_s is None:
            return join(word("no prediction"), small(of(cell).why))
        return join(text.number(of(cell).samples_per_s))

    def share(cell: CellRow, rate: float | None) -> str:
        expected = of(cell).samples_per_s
        return text.share(rate / expected if rate and expected else None)

    columns: dict[str, Field] = {
        "Multiplications (s)": lambda cell: text.number(of(cell).multiply_s, 3),
        "Memory (s)": lambda cell: text.number(of(cell).move_s, 3),
        "Launches, in parallel (s)": lambda cell: text.number(of(cell).launch_s, 3),
        "Predicted (samples/s)": predicted,
        "Measured (samples/s)": lambda cell: text.number(cell.samples_per_s),
        "Measured / predicted": lambda cell: share(cell, cell.samples_per_s),
        "Model-only / predicted": lambda cell: share(cell, cell.model_samples_per_s),
        "Limited by": lambda cell: cell.verdict or text.DASH,
    }
    return cell_table(settings, inputs.cells(settings.study), columns)


def read_predictions(inputs: Inputs) -> list[Prediction]:
    """The predictions among the inputs. Raises ConfigError where they do not fit."""
    path = inputs.path("predicted.json")
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Prediction])
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
