"""Every relative link in the project's documents leads to a file, and to a heading in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for folder in ("", "config", "docs", "profiles", "tests/gaudi")
    for path in (ROOT / folder).glob("*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def prose(path):
    """A document without its code blocks."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path):
    """The names that GitHub gives to a document's headings."""
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(prose(path))
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_link_leads_somewhere(document):
    dead = []
    for link in LINK.findall(prose(ROOT / document)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / document).parent / name if name else ROOT / document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == [], f"in {document}: no such file or heading"


def test_every_page_of_the_documentation_can_be_reached_from_the_readme():
    linked = {link.partition("#")[0] for link in LINK.findall(prose(ROOT / "README.md"))}
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked
