"""A report of 5,000 runs: the time that writing it takes, its size, and when a browser shows it.

The runs are copies of those that the tests keep, in ten studies of 167 cells with three repeats.
"""

import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import yaml

from benchmarks.figure import Figure
from feedrate.config.plan import make_plan
from feedrate.config.project import Project, load_project
from feedrate.core import paths
from feedrate.report import overview, params
from feedrate.report.page import render_page

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests/golden"
STUDY = "bridgetower-dataloading"
LIKE = "workers=2~"
"""The cell whose runs are copied."""
STUDIES, CELLS = 10, 167
FILES = ("results.csv", "cells.csv", "claims.csv", "fit.csv")
DIGITS = re.compile(r"\.(\d{4,})")
RUN_FILES = (paths.EVENTS_NAME, paths.LOG_NAME)
GOAL_WRITE_S, GOAL_MB, GOAL_PAINT_S, GOAL_RECORD_S = 60.0, 40.0, 3.0, 1.0
"""A page that can be sent, opened and asked without waiting."""


def measure() -> Iterator[Figure]:
    """Write the page, look at its size, and open it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as name, chdir(name):
        project, inputs = make(Path(name))
        settings = params.overview_settings(project, make_plan(project))
        page = Path(paths.OVERVIEW).absolute()
        started = time.perf_counter()
        overview.write_overview(settings, page, inputs)
        took_s = time.perf_counter() - started
        runs = f"{3 * STUDIES * CELLS:,} runs"
        yield Figure(f"first page of {runs}: written in", took_s, GOAL_WRITE_S, "s")
        yield Figure(f"first page of {runs}: size", page.stat().st_size / 1e6, GOAL_MB, "MB")
        if chromium:
            paint_s, record_s = opened(page, chromium)
            yield Figure(f"first page of {runs}: first paint", paint_s, GOAL_PAINT_S, "s")
            yield Figure(f"first page of {runs}: a record opens", record_s, GOAL_RECORD_S, "s")


def make(root: Path) -> tuple[Project, list[Path]]:
    """The project and the inputs of its first page, in the working directory `root`."""
    shutil.copytree(GOLDEN / "config", root / "config")
    shutil.copytree(GOLDEN / "resources", root / "resources")
    shutil.copytree(ROOT / "report/captions", root / "report/captions")
    names = [f"study-{number}" for number in range(STUDIES)]
    text = (GOLDEN / f"config/studies/{STUDY}.yaml").read_text(encoding="utf-8")
    text = text.replace("levels: [0, 1, 2, 16]", f"levels: {[*range(CELLS)]}", 1)
    for name in names:
        (root / f"config/studies/{name}.yaml").write_text(text, encoding="utf-8")
        copy_runs(root, name)
    merged = [merge(root, file, names) for file in FILES]
    config = yaml.safe_load((root / "config/config.yaml").read_text(encoding="utf-8"))
    project = load_project(root, {**config, "studies": names})
    pages = [draw(project, name) for name in names]
    captions = sorted((root / "report/captions").glob("*.rst"))
    return project, [*merged, *(page for some in pages for page in some), *captions]


def merge(root: Path, file: str, names: list[str]) -> Path:
    """A result file of each study, and one of all, with the rows of the copied cell."""
    head, *lines = (GOLDEN / f"results/{STUDY}/{file}").read_text(encoding="utf-8").splitlines()
    whole, at = [head], head.split(",").index("workers") if "workers" in head.split(",") else None
    for name in names:
        mine = []
        for line in lines:
            if at is None or LIKE not in line or "reference~strategy=ddp" not in line:
                mine += [line] if at is None or ",published" in line else []
                continue
            for cell in range(CELLS):
                row = line.replace(LIKE, f"workers={cell}~").split(",")
                row[at] = str(cell)
                mine.append(",".join(row))
        mine = [line.replace(STUDY, name) for line in mine]
        own = root / f"results/{name}/{file}"
        own.write_text("\n".join([head, *mine, ""]), encoding="utf-8")
        whole += mine
    path = root / f"results/{file}"
    path.write_text("\n".join([*whole, ""]), encoding="utf-8")
    return path


def copy_runs(root: Path, study: str) -> None:
    """The run folders of a study: the record names its cell, and all measured digits differ, as in
    runs that are not copies: otherwise they would pack too well."""
    digits = random.Random(study)

    def other(found: re.Match[str]) -> str:
        return f".{digits.randrange(10 ** len(found[1])):0{len(found[1])}}"

    for folder in (GOLDEN / f"results/{STUDY}/cpu").glob(f"{LIKE}*/rep*"):
        record = (folder / paths.RECORD_NAME).read_text(encoding="utf-8").replace(STUDY, study)
        for cell in range(CELLS):
            place = str(folder.relative_to(GOLDEN)).replace(STUDY, study)
            target = root / place.replace(LIKE, f"workers={cell}~")
            target.mkdir(parents=True)
            mine = record.replace(LIKE, f"workers={cell}~")
            mine = re.sub(r'"workers": 2\b', f'"workers": {cell}', mine)
            (target / paths.RECORD_NAME).write_text(DIGITS.sub(other, mine), encoding="utf-8")
            for name in RUN_FILES:
                text = (folder / name).read_text(encoding="utf-8")
                (target / name).write_text(DIGITS.sub(other, text), encoding="utf-8")


def draw(project: Project, study: str) -> list[Path]:
    """The tables and figures of a study."""
    made, entry = [], project.studies[study]
    data = project.config.dataset
    for part, items, pattern in (
        ("table", entry.tables, paths.TABLE),
        ("figure", entry.figures, paths.FIGURE),
    ):
        for item in items:
            settings = params.page_settings(project, study, part, item.name)  # type: ignore[arg-type]
            needs = params.inputs_of(part, item.kind, study, data)  # type: ignore[arg-type]
            made.append(Path(pattern.format(study=study, table=item.name, figure=item.name)))
            render_page(settings, made[-1], [Path(file) for file in needs])
    return made


def opened(page: Path, chromium: str) -> tuple[float, float]:
    """Seconds until something is painted, and until the first record is shown after a click."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page()
        view.goto(page.as_uri())
        view.wait_for_selector("thead button", state="attached", timeout=120_000)
        entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        paint_s = view.evaluate(entry) / 1000
        started = time.perf_counter()
        view.evaluate("document.querySelector('.minute .record').click()")
        view.wait_for_selector("dialog[open] details pre", timeout=120_000)
        record_s = time.perf_counter() - started
        browser.close()
    return paint_s, record_s
