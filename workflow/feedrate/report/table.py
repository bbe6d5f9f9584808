"""`python -m feedrate.report.table --settings … --out X.html results/cells.csv …`: one table."""

import sys
from collections.abc import Callable
from pathlib import Path

from feedrate.core.files import write_text
from feedrate.report import command, markup
from feedrate.report.rows import Inputs
from feedrate.report.settings import TableSettings
from feedrate.report.tables import (
    ceilings,
    cells,
    claims,
    data,
    editions,
    equal,
    fit,
    largest,
    latency,
    published,
    quality,
    scaling,
    speedup,
    training,
    winoground,
)

KINDS: dict[str, Callable[[TableSettings, Inputs], markup.Markup]] = {
    "published": published.render,
    "cells": cells.render,
    "scaling": scaling.render,
    "speedup": speedup.render,
    "training": training.render,
    "quality": quality.render,
    "equal": equal.render,
    "claims": claims.render,
    "ceilings": ceilings.render,
    "fit": fit.render,
    "largest": largest.render,
    "latency": latency.render,
    "editions": editions.render,
    "data": data.render,
    "winoground": winoground.render,
}


def render(settings: TableSettings, inputs: Inputs) -> str:
    """A table as a page of its own. Raises ConfigError where an input is missing or wrong."""
    title = settings.table.title
    return markup.page(title, KINDS[settings.table.kind](settings, inputs))


def _main(settings: TableSettings, inputs: Inputs, out: Path) -> None:
    write_text(out, render(settings, inputs))


if __name__ == "__main__":
    sys.exit(command.run("feedrate.report.table", __doc__, TableSettings, _main))
