"""The language of claims: `gaudi2[workers=2,decode=device] / h100[workers=2]`.

    expression = cell "/" cell, or where a claim says `fits`, cell
    cell       = ( device | "*" ) [ "[" [ factor "=" level { "," factor "=" level } ] "]" ]

`*` means each device that was measured; a factor that is not named is at the study's baseline. The
level `largest` of a factor of the study's ladder is the largest that fits. The Snakefile imports
this module, so it is light.
"""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from feedrate.config.errors import Problems, raise_all
from feedrate.config.study import CLAIMED, Study
from feedrate.config.values import Level, level_text, parse_levels
from feedrate.core.errors import ExpectedError

ANY, LARGEST = "*", "largest"
_CELL = re.compile(r"\s*([A-Za-z0-9_.+-]+|\*)\s*(?:\[([^\[\]]*)\]\s*)?")


class ExpressionError(ExpectedError):
    """A wrong expression; the message says which part is wrong and what was expected."""


class CellRef(NamedTuple):
    """A cell of an expression: a device or `*`, and the levels that are named, as `level_text`."""

    device: str
    levels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inside = ",".join(f"{factor}={level}" for factor, level in self.levels)
        return f"{self.device}[{inside}]"


class Ratio(NamedTuple):
    """A ratio of two cells."""

    numerator: CellRef
    denominator: CellRef

    def __str__(self) -> str:
        return f"{self.numerator} / {self.denominator}"

    def on(self, device: str) -> "Ratio":
        """The ratio with `device` for each `*`."""
        cells = (c._replace(device=device) if c.device == ANY else c for c in self)
        return Ratio(*cells)

    def at(self, factor: str, level: str) -> "Ratio":
        """The ratio with both cells at a level of a factor that they do not name."""
        return Ratio(*(cell._replace(levels=(*cell.levels, (factor, level))) for cell in self))

    @property
    def devices(self) -> list[str]:
        """The devices that it names, each once."""
        return list(dict.fromkeys(cell.device for cell in self))


def parse(text: str, *, fits: bool = False) -> Ratio:
    """Read an expression; with `fits`, one cell, as a ratio to itself. Raises ExpressionError."""
    cells = []
    for part in text.split("/"):
        match = _CELL.fullmatch(part)
        if match is None:
            form = "a device or *, and levels in brackets, as in h100[workers=2]"
            raise ExpressionError(f"expected {form}; found {part.strip()!r}")
        try:
            levels = parse_levels(match[2] or "", ",").items()
        except ValueError as error:
            raise ExpressionError(str(error)) from None
        cells.append(CellRef(match[1], tuple((name, level_text(level)) for name, level in levels)))
    if len(cells) != (1 if fits else 2):
        form = "one cell" if fits else "two cells, as in h100[workers=2] / h100"
        raise ExpressionError(f"expected {form}, found {len(cells)}")
    return Ratio(cells[0], cells[-1])


def cell_levels(ref: CellRef, factors: Iterable[str], baseline: dict[str, Level]) -> dict[str, str]:
    """All levels of a cell as text, in the order of the factors."""
    named = dict(ref.levels)
    return {factor: named.get(factor, level_text(baseline[factor])) for factor in factors}


def check_expressions(name: str, study: Study, devices: Collection[str]) -> None:
    """Check a study's claims against its factors and `devices`. Raises ConfigError."""
    problems = Problems(f"config/studies/{name}.yaml")
    for claim in study.claims:
        key = f"claims.{claim.id}.expression"
        try:
            cells = parse(claim.expression, fits=claim.fits is not None)
        except ExpressionError as error:
            problems.add(key, f"{claim.expression!r}: {error}")
            continue
        for ref in dict.fromkeys(cells):
            if ref.device != ANY:
                problems.check_known(key, ref.device, devices, "devices")
            for factor, level in ref.levels:
                if problems.check_known(key, factor, study.factors, "factors"):
                    allowed = [level_text(value) for value in study.factors[factor].levels]
                    if factor in study.ladder:
                        allowed.append(LARGEST)
                    problems.check_known(key, level, allowed, f"levels of {factor}")
        if claim.tolerance is not None and claim.published is None:
            message = f"{claim.tolerance}: only a claim with published has a tolerance"
            problems.add(f"claims.{claim.id}.tolerance", message)
        keys = [key for key in CLAIMED if getattr(claim, key) is not None]
        if len(keys) != 1:
            message = f"it needs one of {', '.join(CLAIMED)}"
            message += f"; it has {' and '.join(keys)}" if keys else ""
            problems.add(f"claims.{claim.id}", message)
    raise_all(problems)
