"""`python -m feedrate.report.figure --settings … --out X.svg results/cells.csv …`: one figure."""

import sys
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from feedrate.core.files import write_text
from feedrate.report import command
from feedrate.report.figures import (
    answer,
    canvas,
    fit,
    gain,
    ladder,
    latency,
    loss,
    reach,
    speedup,
    step_time,
    steps,
    throughput,
    warmup,
)
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings

KINDS: dict[str, Callable[[FigureSettings, Inputs], Figure]] = {
    "answer": answer.draw,
    "gain": gain.draw,
    "throughput": throughput.draw,
    "step_time": step_time.draw,
    "speedup": speedup.draw,
    "fit": fit.draw,
    "loss": loss.draw,
    "ladder": ladder.draw,
    "latency": latency.draw,
    "reach": reach.draw,
    "steps": steps.draw,
    "warmup": warmup.draw,
}


def render(settings: FigureSettings, inputs: Inputs) -> str:
    """A figure as SVG text. Raises ConfigError where an input is missing or does not fit."""
    with canvas.theme():
        drawing = KINDS[settings.figure.kind](settings, inputs)
        return canvas.to_svg(drawing, settings.figure.title)


def _main(settings: FigureSettings, inputs: Inputs, out: Path) -> None:
    write_text(out, render(settings, inputs))


if __name__ == "__main__":
    sys.exit(command.run("feedrate.report.figure", __doc__, FigureSettings, _main))
