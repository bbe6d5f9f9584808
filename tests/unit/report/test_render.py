"""The programs of the report, and figures and tables that are one file each."""

import subprocess
import sys

import pytest
from feedrate.flow.view import PlanView
from report_samples import STUDY, figure, make_project, study_of, table, with_study, write_results

from feedrate.cli import jobs
from feedrate.config.project import check_study
from feedrate.config.study import Figure, Study, Table
from feedrate.report import figures as figures_package
from feedrate.report import params
from feedrate.report import tables as tables_package

FIGURE = """
from feedrate.report.figures import _canvas as canvas

NEEDS = ("cells", "published")
ORDER = 15


def render(settings, inputs):
    figure, (axes,) = canvas.new(2)
    axes.set_title(f"{len(inputs.cells(settings.study))} cells, {len(settings.published)} numbers")
    return figure
"""
TABLE = """
from feedrate.report.markup import el

NEEDS = ("claims",)
ORDER = 5


def render(settings, inputs):
    return el("p", f"The factor is {settings.factor} & no other.")
"""


def call(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "feedrate", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def test_table_and_figure_from_the_command_line(tmp_path, project):
    inputs = write_results(tmp_path, project)
    for part, name, out in (("table", "cells", "cells.html"), ("figure", "answer", "answer.svg")):
        param = params.page_settings(project, STUDY, part, name)
        words = ("render-page", "--settings", param, "--out", f"out/{out}", "--inputs", *files)
        made = call(*words, cwd=tmp_path)
        assert made.returncode == 0, made.stderr
    assert "14.10" in (tmp_path / "out/cells.html").read_text()
    assert (tmp_path / "out/answer.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("job", ["render-page", "write-overview"])
@pytest.mark.parametrize("settings", ["{'study': 1}", "no mapping"])
def test_wrong_settings_end_with_a_sentence(tmp_path, capsys, job, settings):
    out = tmp_path / "x"
    assert jobs.run(job, ["--settings", settings, "--out", str(out), "--inputs", "cells.csv"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"feedrate {job}: --settings: ")
    assert "Traceback" not in said
    assert not out.exists()


def test_a_missing_input_ends_with_a_sentence(tmp_path, capsys):
    param = params.page_settings(make_project(), STUDY, "table", "cells")
    words = ["--settings", repr(param), "--out", str(tmp_path / "x")]
    assert jobs.run("render-page", words) == 1
    assert capsys.readouterr().err == (
        "feedrate render-page: cells.csv is needed, but is not among the input files (none)\n"
    )


def wrong_kinds(study, devices):
    """The errors of the configuration check about the kinds of a study's pages."""
    return [line for line in check_study("s.yaml", study, devices, []) if ".kind: " in line]


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A figure and a table, each one file in a folder of its own; and a study that shows them."""
    for package, text in ((figures_package, FIGURE), (tables_package, TABLE)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        name = f"new_{package.__name__.rpartition('.')[2]}"
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
    project = make_project()
    study = project.studies[STUDY]
    new = {"title": "New & shiny", "caption": "figure_answer"}
    return with_study(
        project,
        figures=[*study.figures, Figure(name="mine", kind="new_figures", **new)],
        tables=[*study.tables, Table(name="mine", kind="new_tables", **new)],
    )


def test_a_new_file_is_a_kind_that_the_configuration_accepts(added):
    study = added.studies[STUDY]
    assert wrong_kinds(study, added.devices) == []


def test_a_new_figure_and_a_new_table_are_planned(added, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view = PlanView(added, tmp_path)
    assert view.inputs_of(STUDY, "figure", "mine") == [f"results/{STUDY}/cells.csv"]
    assert view.inputs_of(STUDY, "table", "mine") == [f"results/{STUDY}/claims.csv"]
    assert f"results/{STUDY}/figures/mine.svg" in view.pages(STUDY)
    shown = view.rendering(STUDY, "figure", "mine")["settings"]["published"]
    assert shown == view.rendering(STUDY, "figure", "reach")["settings"]["published"] != []
    assert view.rendering(STUDY, "table", "mine")["settings"]["published"] == []
    order = study_of(added).order
    assert order[:3] == ["table-mine", "figure-answer", "figure-mine"]


def test_a_new_figure_and_a_new_table_are_rendered(added, tmp_path):
    inputs = write_results(tmp_path, added)
    drawn = figure(added, inputs, "mine")
    assert "<svg" in drawn
    assert f"{len(inputs.cells(STUDY))} cells, {len(added.published[STUDY])} numbers" in drawn
    page = table(added, inputs, "mine")
    assert "<title>New &amp; shiny</title>" in page
    assert "The factor is workers &amp; no other." in page


def test_an_unknown_kind_is_an_error_with_the_known_ones(project):
    figures = [Figure(name="x", kind="answr", title="X", caption="figure_answer")]
    study: Study = with_study(project, figures=figures).studies[STUDY]
    (line,) = wrong_kinds(study, project.devices)
    assert line.startswith("s.yaml: figures[0].kind: 'answr' is not allowed; did you mean answer?")
