"""A table or figure of a study, rendered by the file of its kind in `tables/` or `figures/`."""

from pathlib import Path
from typing import Any

from feedrate.core import plugins
from feedrate.core.files import write_text
from feedrate.report.params import PageSettings, from_param
from feedrate.report.rows import Inputs


def render_page(settings: dict[str, Any], out: Path, inputs: list[Path] | None = None) -> None:
    """Write a table as HTML or a figure as SVG.

    `settings` come from `params.page_settings`; inputs are recognised by file name.
    """
    write_text(out, render(from_param(settings, PageSettings), Inputs(inputs or [])))


def render(settings: PageSettings, inputs: Inputs) -> str:
    """The page. Raises ConfigError where an input is missing or wrong."""
    kind = plugins.load(f"feedrate.report.{settings.part}s", settings.kind)
    return str(kind.render(settings, inputs))
