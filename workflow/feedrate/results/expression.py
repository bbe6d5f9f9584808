"""The language of claims: `gaudi2[workers=2,decode=device] / h100[workers=2]`.

    expression = cell "/" cell, or where a claim says `fits`, cell
    cell       = ( device | "*" ) [ "[" [ factor "=" level { "," factor "=" level } ] "]" ]

`*` means each device that was measured; a factor that is not named is at the study's baseline. The
level `largest` of the factor that a study searches is the largest that fits, once a larger one is
known not to.
White space is allowed between the parts. The Snakefile checks claims at every parse, so this module
imports nothing heavy.
"""

import difflib
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple, NoReturn

from feedrate.config.errors import ConfigError
from feedrate.config.study import Study
from feedrate.config.values import Level, level_text, parse_level
from feedrate.core.errors import ExpectedError

ANY, LARGEST = "*", "largest"
_TOKEN = re.compile(r"\s*(?:([A-Za-z0-9_.+-]+)|([*/\[\]=,]))")


class ExpressionError(ExpectedError):
    """A wrong expression; the message gives the place and what was expected."""


class CellRef(NamedTuple):
    """A cell of an expression: a device or `*`, and the levels that are named, as text."""

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

    @property
    def any_device(self) -> bool:
        """Whether it is one ratio for each device."""
        return ANY in (self.numerator.device, self.denominator.device)

    def on(self, device: str) -> "Ratio":
        """The ratio with `device` for each `*`."""
        return Ratio(
            *(cell._replace(device=device) if cell.device == ANY else cell for cell in self)
        )

    def at(self, factor: str, level: str) -> "Ratio":
        """The ratio with both cells at a level of a factor that they do not name."""
        return Ratio(*(cell._replace(levels=(*cell.levels, (factor, level))) for cell in self))

    def names(self, factor: str) -> bool:
        """Whether a cell of it names a level of the factor."""
        return any(factor in dict(cell.levels) for cell in self)

    @property
    def devices(self) -> list[str]:
        """The devices that it names, each once."""
        return list(dict.fromkeys(cell.device for cell in self))


def parse(text: str, *, fits: bool = False) -> Ratio:
    """Read an expression; of a claim that says `fits`, one cell, as a ratio to itself. Raises
    ExpressionError."""
    reader = _Reader(text)
    numerator = denominator = reader.cell()
    if not fits:
        reader.symbol("/")
        denominator = reader.cell()
    reader.end()
    return Ratio(numerator, denominator)


def cell_levels(ref: CellRef, factors: Iterable[str], baseline: dict[str, Level]) -> dict[str, str]:
    """All levels of a cell as text, in the order of the factors."""
    named = {factor: as_level(text) for factor, text in ref.levels}
    return {factor: named.get(factor, level_text(baseline[factor])) for factor in factors}


def as_level(text: str) -> str:
    """A level's text as the suite writes it: `1e-5` and `1e-05` are one level."""
    return level_text(parse_level(text))


def check_expressions(name: str, study: Study, devices: Collection[str]) -> None:
    """Check every claim of a study against its factors, levels and the device registry.

    Raises ConfigError for the first wrong one, with its file, its claim and what is allowed.
    """
    for claim in study.claims:
        origin = f"config/studies/{name}.yaml: claims.{claim.id}"
        try:
            ratio = parse(claim.expression, fits=claim.fits is not None)
        except ExpressionError as error:
            raise ConfigError(f"{origin}.expression: {claim.expression!r}: {error}") from None
        for ref in ratio:
            if ref.device != ANY:
                _known(origin, "device", ref.device, list(devices))
            for factor, level in ref.levels:
                _known(origin, "factor", factor, list(study.factors))
                allowed = [level_text(value) for value in study.factors[factor].levels]
                allowed += [LARGEST] * (factor == study.search)
                _known(origin, f"level of {factor}", as_level(level), allowed)
        ways = ("published", "more_than", "no_less_than", "fits")
        given = [name for name in ways if getattr(claim, name) is not None]
        if len(given) != 1:
            found = f"; it has {' and '.join(given)}" if given else ""
            raise ConfigError(f"{origin}: it needs one of {', '.join(ways)}{found}")


def _known(origin: str, what: str, value: str, allowed: list[str]) -> None:
    if value not in allowed:
        close = difflib.get_close_matches(value, allowed, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise ConfigError(
            f"{origin}.expression: {what} {value!r} is not allowed{meant}; "
            f"allowed: {', '.join(allowed)}"
        )


class _Reader:
    """A recursive-descent reader with one method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def cell(self) -> CellRef:
        device = ANY if self._take(ANY) else self._word("a device or *")
        if not self._take("["):
            return CellRef(device)
        levels: list[tuple[str, str]] = []
        while not self._take("]"):
            if levels:
                self.symbol(",")
            factor = self._word("a factor")
            self.symbol("=")
            if factor in dict(levels):
                raise ExpressionError(f"factor {factor!r} occurs twice in one cell")
            levels.append((factor, self._word("a level")))
        return CellRef(device, tuple(levels))

    def symbol(self, symbol: str) -> None:
        if not self._take(symbol):
            self._fail(f"{symbol!r}")

    def end(self) -> None:
        if self._text[self._at :].strip():
            self._fail("the end")

    def _word(self, what: str) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[1] is None:
            self._fail(what)
        self._at = match.end()
        return match[1]

    def _take(self, symbol: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[2] != symbol:
            return False
        self._at = match.end()
        return True

    def _fail(self, expected: str) -> NoReturn:
        rest = self._text[self._at :].strip()
        found = f"{rest[:20]!r}" if rest else "the end"
        raise ExpressionError(f"expected {expected} at character {self._at + 1}, found {found}")
