"""What sources state: sheets of their experiments, and scores of models."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec.structs import replace

from feedrate.config.errors import Findings, raise_all
from feedrate.config.study import Published, Study
from feedrate.config.values import AnyRow, Level, Name, Strict, Text, about, load, read_rows

SHEETS = "config/published/sheets.yaml"
FILES = tuple(name for name in Study.__struct_fields__ if name.startswith("published"))
"""The keys of a study that name files in config/published."""

_What = Literal["device", "devices", "model", "data", "rows", "steps_per_epoch", "checkpoint"]
_How = Literal["precision", "tf32", "parallelism", "batch_size", "warmup_steps", "window"]
Item = Literal[_What, _How, "software"]
"""The statements of a sheet, under the names that our results have. `devices` is their number in
the job; `tf32`: whether single precision is computed as TF32; `window`: what the rate was timed
over."""


class Fact(Strict, kw_only=True):
    """One item of a sheet."""

    says: Annotated[
        Level | list[Level],
        about("In the words of our results; a list: one of these; an empty list: nothing."),
    ]
    where: Annotated[Text, about("Where it says so, or how it follows.")]

    @property
    def values(self) -> tuple[Level, ...]:
        """All that it may be."""
        return tuple(self.says) if isinstance(self.says, list) else (self.says,)


class Sheet(Strict, kw_only=True):
    """A source's statements about an experiment; it does not state what is missing here."""

    source: Annotated[Text, about("Title of the source.")]
    like: Annotated[str, about("An entry above, whose facts hold here too.")] = ""
    facts: dict[Item, Fact] = {}


class Sources(Strict, kw_only=True):
    """What a comparison with a study's sources needs besides our runs."""

    sheets: dict[Name, Sheet] = {}
    default: Annotated[str, about("The sheet of statements about cells without a number.")] = ""
    datasets: Annotated[dict[Name, str], about("Entry of config.yaml to its hub name.")] = {}

    def facts(self, sheet: str | None) -> dict[Item, Fact]:
        """The facts of a sheet; None: the default. Nothing where there is no such sheet."""
        found = self.sheets.get(self.default if sheet is None else sheet)
        return found.facts if found else {}


def read_sheets(
    root: Path, studies: Mapping[str, Study], published: Mapping[str, Iterable[Published]]
) -> dict[Name, Sheet]:
    """All sheets under `root`. Raises ConfigError, also for a sheet that is named but missing."""
    file, sheets = root / SHEETS, dict[Name, Sheet]()
    if file.is_file():
        sheets = load(file, dict[Name, Sheet], SHEETS)
    wrong = Findings(SHEETS)
    for name, sheet in sheets.items():
        if sheet.like and wrong.known(f"{name}.like", sheet.like, sheets, "entries"):
            sheets[name] = replace(sheet, facts=sheets[sheet.like].facts | sheet.facts)
    for study, entry in studies.items():
        for name in dict.fromkeys([entry.source.sheet, *(row.sheet for row in published[study])]):
            if name:
                wrong.known(f"sheet of the study {study}", name, sheets, "entries")
    raise_all(wrong)
    return sheets


def read_scores(
    root: Path, studies: Mapping[str, Study], key: str, kind: type[AnyRow]
) -> dict[str, list[AnyRow]]:
    """The rows of the files that each study names under `key`. Raises ConfigError."""
    files = {n: map("config/published/{}".format, getattr(s, key)) for n, s in studies.items()}
    return {n: [r for f in fs for r in read_rows(root / f, kind, f)] for n, fs in files.items()}
