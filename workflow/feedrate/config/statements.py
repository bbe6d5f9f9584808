"""What sources state: their statements and where each is here, sheets of their experiments, scores
of models, and claims about loaders."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from feedrate.config.additions import read_added
from feedrate.config.errors import Findings, numbered, raise_all
from feedrate.config.study import LoaderClaim, Published, Study
from feedrate.config.values import AnyRow, Level, Name, Strict, Text, about, load, read_rows

FOLDER = "config/published/sources"
Status = Literal["audited", "cpu", "device", "not_reproducible"]
"""audited: `make check-claims` recomputes it without training; cpu: the command runs on any
machine; device: it is ready, and needs a device; not_reproducible: it cannot be had here."""

REQUIRED: dict[Status, tuple[str, ...]] = {
    "audited": ("here", "command"),
    "cpu": ("here", "command"),
    "device": ("here", "command", "needs"),
    "not_reproducible": ("why",),
}
"""The keys that a row of each status must have."""

MEASURED = ("claim:", "level:", "study:")
"""The kinds of references that a run can measure."""

SHEETS = "config/published/sheets.yaml"
FILES = tuple(name for name in Study.__struct_fields__ if name.startswith("published"))
"""The keys of a study that name files in config/published."""

_What = Literal["device", "devices", "model", "data", "rows", "steps_per_epoch", "checkpoint"]
_How = Literal["precision", "tf32", "parallelism", "batch_size", "warmup_steps", "window"]
Item = Literal[_What, _How, "software"]
"""The statements of a sheet, under the names that our results have. `devices` is their number in
the job; `tf32`: whether single precision is computed as TF32; `window`: what the rate was timed
over."""


class Statement(Strict, kw_only=True):
    """A statement, number, experiment, system, technique or figure of a source."""

    section: Annotated[Text, about("Its heading, figure or table in the source.")]
    says: Annotated[Text, about("Its words, or a short paraphrase.")]
    here: Annotated[
        list[Text],
        about(
            "Where it is here: study:STUDY, claim:STUDY/ID, published:FILE/ROW, table:KIND, "
            "level:STUDY/FACTOR=LEVEL, figure:KIND, device:NAME or command:TARGET; * is any text."
        ),
    ] = []
    command: Annotated[str, about("What a user types: make TARGET with STUDY and DEVICE.")] = ""
    status: Status
    needs: Annotated[list[Name], about("Devices of config/devices.yaml that it needs.")] = []
    why: Annotated[str, about("Why it is not reproducible; elsewhere a remark.")] = ""

    @property
    def measured(self) -> list[str]:
        """The references that its command measures: none if it runs nothing, as `make plan`."""
        runs = self.command.startswith("make run")
        return [name for name in self.here if runs and name.startswith(MEASURED)]


class Document(Strict, kw_only=True):
    """One source: a file in config/published/sources/."""

    title: Text
    address: str = ""
    rows: Annotated[list[Statement], Meta(min_length=1)]


def read_documents(root: Path) -> dict[str, Document]:
    """All sources under `root` by file name, in alphabetical order. Raises ConfigError."""
    documents = {}
    for path in sorted((root / FOLDER).glob("*.yaml")):
        file = f"{FOLDER}/{path.name}"
        documents[path.stem] = document = load(path, Document, file)
        found = Findings(file)
        for key, row in numbered("rows[{}]", document.rows):
            for name in REQUIRED[row.status]:
                if not getattr(row, name):
                    found.say(f"{key}.{name}", f"missing, but required with status {row.status}")
        raise_all(found)
    return documents


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
    sheets: dict[Name, Sheet] = read_added(root, SHEETS, dict[Name, Sheet], {})
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


def read_loader_claims(root: Path, studies: Mapping[str, Study]) -> dict[str, list[LoaderClaim]]:
    """What each study's `published_loaders` say, about levels of its factor `loader`. Raises
    ConfigError."""
    loaders = read_scores(root, studies, "published_loaders", LoaderClaim)
    found = Findings("published_loaders")
    for name, claims in loaders.items():
        factor = studies[name].factors.get("loader")
        levels = factor.levels if factor else []
        for claim in claims:
            found.known(f"{claim.id}.loader", claim.loader, levels, "levels of loader")
            found.known(f"{claim.id}.over", claim.over, levels, "levels of loader")
    raise_all(found)
    return loaders
