"""The programs of the report, and figures and tables that are one file each."""

import sys

import msgspec
import pytest
from report_samples import (
    STUDY,
    figure,
    make_project,
    plan_of,
    study_of,
    table,
    with_study,
    write_results,
)

from feedrate.cli import jobs
from feedrate.config.project import check_study
from feedrate.config.study import Figure, Study, Table
from feedrate.report import figures as figures_package
from feedrate.report import tables as tables_package

FIGURE = """
from feedrate.report import chart

KINDS = {"new_figure": 15}


def new_figure(settings, inputs):
    cells, numbers = inputs.cells(settings.study), settings.published
    return chart.Picture([chart.Panel(title=f"{len(cells)} cells, {len(numbers)} numbers")])
"""
TABLE = """
KINDS = {"one": 5, "other": 6}


def one(settings, inputs):
    return f"The factor is {settings.factor} & no other."


def other(settings, inputs):
    return [one(settings, inputs), "Once more."]
"""


def run(part, plan, folder):
    """Make the tables or figures of a study whose results are in `folder`."""
    file = folder / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    results = folder / f"results/{STUDY}"
    return jobs.run(part, ["--plan", str(file), "--results", str(results)])


def test_all_pages_of_a_study_are_made_and_others_removed(tmp_path, project):
    write_results(tmp_path, project)
    study = project.studies[STUDY]
    figures = [figure for figure in study.figures if figure.kind in ("answer", "gain")]
    plan = plan_of(with_study(project, figures=figures))
    (tmp_path / f"results/{STUDY}/figures").mkdir()
    for file in ("figures/old.svg", "figures/note.txt"):
        (tmp_path / f"results/{STUDY}" / file).write_text("old")
    assert run("plot-figures", plan, tmp_path) == 0
    names = {file.name for file in (tmp_path / f"results/{STUDY}/figures").iterdir()}
    assert names == {"answer.svg", "gain.svg", "note.txt"}
    plan = plan_of(with_study(project, tables=study.tables[:2]))
    assert run("tabulate-results", plan, tmp_path) == 0
    names = {file.stem for file in (tmp_path / f"results/{STUDY}/tables").iterdir()}
    assert names == {table.name for table in study.tables[:2]}


def test_a_missing_file_ends_with_a_sentence(tmp_path, project, capsys):
    assert run("tabulate-results", plan_of(project), tmp_path) == 1
    told = capsys.readouterr().err
    assert ".csv" in told
    assert "Traceback" not in told


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
        figures=[*study.figures, Figure(name="mine", kind="new_figure", **new)],
        tables=[*study.tables, Table(name="mine", kind="one", **new)],
    )


def test_a_new_file_is_a_kind_that_the_configuration_accepts(added):
    study = added.studies[STUDY]
    assert wrong_kinds(study, added.devices) == []


def test_a_new_figure_and_a_new_table_have_their_places(added):
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
