"""Run folders that an earlier version wrote give the same records, tables and pages now."""

import csv
import html
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from feedrate.cli.make_results import make_results
from feedrate.config.project import load_project
from feedrate.core.paths import RECORD_NAME
from feedrate.flow.view import PlanView
from feedrate.report import overview
from feedrate.report.page import render
from feedrate.report.params import OverviewSettings, PageSettings, from_param
from feedrate.report.rows import CellRow, ClaimRow, Inputs, RunRow
from golden.freeze import REMOVED_COLUMNS, same

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden"
STUDIES = ("bridgetower-dataloading", "bridgetower-learning")
RECORDS = sorted(str(p.relative_to(GOLDEN)) for p in GOLDEN.rglob(RECORD_NAME))
TABLES = sorted(str(p.relative_to(GOLDEN)) for p in (GOLDEN / "results").rglob("*.csv"))
PAGES = sorted(str(p.relative_to(GOLDEN)) for p in GOLDEN.rglob("tables/*.html"))
PROSE = {"cause", "why", "recommendation", "reading", "statement", "note"}
PROSE |= {"detail", "description"}
"""Columns and keys that hold sentences. Only the numbers in them are compared."""
FILES = ("results.csv", "cells.csv", "results.parquet")
STYLE = re.compile(r"<style[^>]*>.*?</style>", flags=re.DOTALL)
OF_TRIED = ("equal", "stages", "window")
UNSUPPORTED = re.compile(r"<tr>(?:(?!</tr>).)*not supported<.*?</tr>", flags=re.DOTALL)
"""Rows that these tables had: the tables of all cells count the cells that are not supported."""
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def numbers(text: str) -> Counter[str]:
    return Counter(NUMBER.findall(text))


def view_of(root: Path) -> PlanView:
    config = yaml.safe_load((root / "config/config.yaml").read_text(encoding="utf-8"))
    return PlanView(load_project(root, config), root)


def make_all(root: Path) -> PlanView:
    """All result files below `root`, from its run folders, by the jobs of the rules. The working
    directory is `root`."""
    view = view_of(root)
    make_results(view)
    return view


def merge_names() -> tuple[str, ...]:
    return "results", "cells", "claims"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("golden") / "project"
    shutil.copytree(GOLDEN, root)
    shutil.copytree(ROOT / "report/captions", root / "report/captions")
    derived = [*RECORDS, *TABLES, *PAGES, "results/overview.html"]
    for name in derived:
        (root / name).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        yield root, make_all(root)


def assert_same(old, new, where=""):
    """All that `old` holds is in `new`, which may say more."""
    key = where.rpartition(".")[2]
    if isinstance(old, dict):
        old = {name: value for name, value in old.items() if name not in REMOVED_COLUMNS}
        assert old.keys() <= new.keys(), where
        for name, value in old.items():
            assert_same(value, new[name], f"{where}.{name}")
    elif key == "checks":
        assert_same(*({check["name"]: check for check in checks} for checks in (old, new)), where)
    elif isinstance(old, list):
        assert len(old) == len(new), where
        for one, other in zip(old, new, strict=True):
            assert_same(one, other, where)
    elif key in PROSE:
        assert numbers(old) == numbers(new), f"{where}: {old!r}, now {new!r}"
    else:
        assert same(old, new), f"{where}: {old!r}, now {new!r}"
        assert type(old) is type(new), where


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_the_same(made, name):
    old, new = (json.loads((root / name).read_text()) for root in (GOLDEN, made[0]))
    assert_same(old, new)


def read_text(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", TABLES)
def test_result_files_are_the_same(made, name):
    files = [root / name for root in (GOLDEN, made[0])]
    assert_same(*map(read_text, files))
    old, new = (file.read_text(encoding="utf-8").splitlines()[0].split(",") for file in files)
    old = [column for column in old if column not in REMOVED_COLUMNS]
    assert old == [column for column in new if column in old]


def test_parquet_is_the_same(made):
    name = f"results/{STUDIES[0]}/results.parquet"
    old, new = (pq.read_table(root / name) for root in (GOLDEN, made[0]))
    old = old.drop_columns([name for name in old.column_names if name in REMOVED_COLUMNS])
    for field in old.schema:
        other = new.schema.field(field.name)
        assert other.type == field.type
        assert other.metadata[b"unit"] == field.metadata[b"unit"]
    assert_same(old.to_pylist(), new.select(old.column_names).to_pylist())


def words_of(page: str) -> str:
    """The visible text of a page, its captions left out: they come from files of their own."""
    page = re.sub(r"<title>.*?</title>", "", STYLE.sub("", page), flags=re.DOTALL)
    page = re.sub(r'<div class="caption">.*?</div>', "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "\n", page))


def assert_holds(old: str, new: str):
    """Every number that the old page shows is on the new one as often."""
    assert numbers(words_of(old)) - numbers(words_of(new)) == Counter()


@pytest.mark.parametrize("name", PAGES)
def test_tables_show_the_same_numbers(made, name):
    root, view = made
    page = page_of(view, root, Path(name).parts[1], Path(name).stem)
    old = (GOLDEN / name).read_text(encoding="utf-8")
    assert_holds(UNSUPPORTED.sub("", old) if Path(name).stem in OF_TRIED else old, page)


def page_of(view: PlanView, root: Path, study: str, table: str) -> str:
    """A table's page."""
    page = study, "table", table
    settings = from_param(view.rendering(*page)["settings"], PageSettings)
    return render(settings, Inputs(root / file for file in view.inputs_of(*page)))


def overview_of(view: PlanView, root: Path, pages: list[Path]) -> str:
    """The first page, with empty pictures."""
    files = [*pages, *(root / f"results/{name}.csv" for name in merge_names())]
    for study in STUDIES:
        for figure in view.project.studies[study].figures:
            picture = root / f"results/{study}/figures/{figure.name}.svg"
            picture.parent.mkdir(exist_ok=True)
            picture.write_text("<svg/>")
            files.append(picture)
    settings = from_param(view.overview()["settings"], OverviewSettings)
    return overview.render(settings, Inputs(files))


def test_the_overview_says_the_same_numbers(made):
    root, view = made
    old = (GOLDEN / "results/overview.html").read_text(encoding="utf-8")
    assert_holds(old, overview_of(view, root, [GOLDEN / name for name in PAGES]))


def write_again(root: Path) -> None:
    """Write the result files and pages again, after a change of numbers on purpose; `root` is a
    folder that does not exist."""
    shutil.copytree(GOLDEN, root)
    shutil.copytree(ROOT / "report/captions", root / "report/captions")
    os.chdir(root)
    view, pages = make_all(root), []
    for study in STUDIES:
        for table in view.project.studies[study].tables:
            pages.append(root / f"results/{study}/tables/{table.name}.html")
            page = page_of(view, root, study, table.name)
            pages[-1].write_text(STYLE.sub("", page), encoding="utf-8")
    first = root / "results/overview.html"
    first.write_text(STYLE.sub("", overview_of(view, root, pages)), encoding="utf-8")
    parquet = root / f"results/{STUDIES[0]}/results.parquet"
    for file in (*pages, first, parquet, *(root / name for name in TABLES)):
        shutil.copy(file, GOLDEN / file.relative_to(root))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cells.csv", CellRow),
        ("results.csv", RunRow),
        ("claims.csv", ClaimRow),
    ],
)
@pytest.mark.parametrize("study", STUDIES)
def test_old_files_can_be_read(name, kind, study):
    file = GOLDEN / "results" / study / name
    if file.exists():
        rows = read_text(file)
        assert len(Inputs([file]).rows(name, kind, study)) == len(rows)


if __name__ == "__main__":
    write_again(Path(tempfile.mkdtemp()) / "project")
