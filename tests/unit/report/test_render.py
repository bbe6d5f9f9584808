"""The drawing of figures: nothing overlaps, bytes are reproducible, and files are written."""

import itertools
import re
import sys
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest
from matplotlib.text import Text
from msgspec.structs import replace
from report_samples import EVIL, RATES, ROOT, STUDY, golden, make_project, write_results

from feedrate.cli import jobs
from feedrate.core import paths
from feedrate.report import chart, drawing
from feedrate.report import figures as package
from feedrate.report.chart import all_figures

RUNS = {"steps"}
DRAWN = {
    ("", "bridgetower-dataloading"): RUNS | {"answer"},
    ("", "bridgetower-learning"): RUNS,
    ("studies", "bridgetower-inference"): {"latency", "steps"},
    ("studies", "dataloading-levels"): RUNS | {"answer"},
    ("studies", "flava-scaling"): RUNS | {"reach"},
    ("studies", "gaudi-accelerations"): RUNS | {"answer"},
    ("studies", "vit-speedups"): RUNS | {"answer"},
}
"""By project and study, the figures that have something to draw."""


def pictures(study):
    """The figures of a study that have something to draw."""
    drawn = {figure.name: figure.draw(study) for figure in all_figures()}
    return {name: picture for name, picture in drawn.items() if picture}


def boxes(picture):
    """The boxes of all texts of a picture, and that of the whole."""
    with drawing.theme():
        figure = drawing.draw(picture)
        figure.draw_without_rendering()
        shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        beyond = {label for axes in figure.axes for label in beyond_the_axes(axes)}
        return {t: t.get_window_extent() for t in shown if t not in beyond}, figure.bbox


def beyond_the_axes(axes):
    """The labels of ticks that are not drawn because they are outside of the view."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not axes.get_visible() or not low <= tick.get_loc() <= high:
                yield tick.label1


def assert_legible(picture):
    """No text touches another or leaves the picture, and none is too small for a phone."""
    texts, whole = boxes(picture)
    outside = [
        text.get_text()
        for text, box in texts.items()
        if box.x0 < whole.x0 - 1 or box.x1 > whole.x1 + 1 or box.y0 < -1 or box.y1 > whole.y1 + 1
    ]
    touching = [
        (one.get_text(), other.get_text())
        for (one, box), (other, near) in itertools.combinations(texts.items(), 2)
        if box.x0 < near.x1 and near.x0 < box.x1 and box.y0 < near.y1 and near.y0 < box.y1
    ]
    assert (outside, touching) == ([], [])
    assert min(text.get_fontsize() for text in texts) * 358 / 72 / chart.WIDTH_IN >= 8


@pytest.mark.parametrize(("kept", "name"), DRAWN)
def test_every_figure_of_a_golden_study_is_legible_or_has_nothing_to_show(kept, name, monkeypatch):
    monkeypatch.chdir(ROOT / "tests/golden" / kept)
    drawn = pictures(golden(name, kept))
    assert drawn.keys() == DRAWN[kept, name]
    for picture in drawn.values():
        assert_legible(picture)


@pytest.mark.parametrize("asks", ["speed", "largest", "learning"])
def test_many_devices_and_levels_with_failures_and_long_names_are_legible(
    tmp_path, monkeypatch, asks
):
    monkeypatch.chdir(tmp_path)
    levels = [*range(5), *range(100_000, 100_008)]
    for level in levels:
        monkeypatch.setitem(RATES, level, 1000.0 + level / 100)
    project = make_project(("cpu", "h100"), levels, asks=asks, ladder=["workers"])
    label = "A processor with a name that is rather long"
    project.devices["cpu"] = replace(project.devices["cpu"], label=label)
    statuses = {100_007: "out_of_memory", 100_006: "invalid", 100_005: "failed"}
    study = write_results(tmp_path, project, {("h100", k): v for k, v in statuses.items()})
    for picture in pictures(study).values():
        assert_legible(picture)


def test_the_same_data_give_the_same_bytes_and_texts_are_texts(study):
    for name, picture in pictures(study).items():
        svg = drawing.as_svg(picture, f"Title of {name} {EVIL}")
        with mpl.rc_context({"font.size": 30, "lines.color": "red"}):
            assert drawing.as_svg(picture, f"Title of {name} {EVIL}") == svg
        assert not re.search(r"20\d\d-\d\d-\d\d|matplotlib", svg.split("</metadata>")[0])
        # Nothing is fetched, and the font is as wide as where texts were laid out.
        root = ET.fromstring(svg)
        assert len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 3
        assert "'DejaVu Sans', Verdana, sans-serif" in svg
        assert "<script" not in svg
        assert not re.search(r'href="(?!#)', svg)


def test_series_differ_without_their_colours(study):
    for picture in pictures(study).values():
        looks = {s.name: s.look for panel in picture.panels for s in panel.series if s.name}
        plain = [look._replace(color="", fill="") for look in looks.values()]
        assert len(set(plain)) == len(plain)


FIGURE = """
from feedrate.report.chart import Figure, Panel, Picture


def draw(study):
    return Picture([Panel([], title=f"{len(study.cells)} cells", height_in=1)])


FIGURES = (Figure("new", "New & shiny", "why", 15, draw),)
"""


def test_a_stage_writes_all_figures_also_added_ones_and_removes_others(
    study, tmp_path, monkeypatch
):
    folder = tmp_path / "added"
    folder.mkdir()
    (folder / "added_figure.py").write_text(FIGURE)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"{package.__name__}.added_figure", raising=False)
    figures = study.folder / "figures"
    figures.mkdir()
    for name in ("old.svg", "note.txt"):
        (figures / name).write_text("old")
    arguments = ["--plan", paths.STUDY_PLAN.format(study=STUDY), "--results", str(study.folder)]
    assert jobs.run("plot_figures", arguments) == 0
    names = {file.name for file in figures.iterdir()}
    assert names == {*(f"{name}.svg" for name in pictures(study)), "note.txt"}
    assert [one.name for one in all_figures()][:3] == ["answer", "new", "gain"]
    svg = (figures / "new.svg").read_text()
    assert "New &amp; shiny" in svg
    assert f"{len(study.cells)} cells" in svg


def test_a_missing_file_ends_with_a_sentence(study, capsys):
    (study.folder / "cells.csv").unlink()
    arguments = ["--plan", paths.STUDY_PLAN.format(study=STUDY), "--results", str(study.folder)]
    assert jobs.run("plot_figures", arguments) == 1
    message = capsys.readouterr().err
    assert "cells.csv" in message
    assert "Traceback" not in message
