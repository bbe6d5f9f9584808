"""The statements of each source, and where each is here."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from feedrate.config.errors import Findings, numbered, raise_all
from feedrate.config.values import Name, Strict, Text, about, load

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
        runs = self.command.startswith("make run") and "ARGS=predict" not in self.command
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
