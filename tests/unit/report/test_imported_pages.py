"""Imported runs in tables and figures, next to measured and published ones."""

import base64
import json
import re
import zlib

import foreign_runs as foreign
import msgspec
import pytest
from report_samples import STUDY, figure, make_project, table, write_results

from feedrate.config.additions import KIND, PAGE, Import, with_page
from feedrate.config.devices import Peak
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.report.rows import Inputs
from feedrate.results.imported import Imported, import_runs
from feedrate.results.params import import_settings
from feedrate.results.record import read_document

CELL = "workers=2~decode=host"


@pytest.fixture
def five_kinds(tmp_path, monkeypatch):
    """A study with results, and foreign logs of five kinds; one of them is refuted by its FLOPs."""
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "logs"
    foreign.trainer_folder(logs / "trainer", total_flos=4e20)
    foreign.events_folder(logs / "tensorboard")
    foreign.benchmark_report(logs / "optimum")
    foreign.milabench_file(logs / "mila")
    foreign.habana_tests(logs / "habana")
    (logs / "slurm-1.out").write_text(foreign.TRAINING + foreign.bars() + "\n" + foreign.FINAL)
    project = make_project(("cpu", "gaudi2"))
    levels = {"workers": 2, "decode": "host"}
    entry = Import(folder=str(logs), study=STUDY, device="gaudi2", levels=levels, source="Ann")
    config = msgspec.structs.replace(project.config, imports=[entry])
    peak = Peak(precision="bf16", datasheet_tflops=432.0, source="data sheet")
    gaudi2 = msgspec.structs.replace(project.devices["gaudi2"], peaks=[peak])
    devices = project.devices | {"gaudi2": gaudi2}
    project = msgspec.structs.replace(project, config=config, devices=devices)
    files = write_results(tmp_path, project)
    settings = import_settings(project, STUDY)
    out = tmp_path / paths.IMPORTED.format(study=STUDY)
    import_runs(settings, out)
    return project, Inputs([*files, out])


def test_logs_of_five_kinds_stand_beside_published_rows(five_kinds):
    page = table(*five_kinds, "imported")
    for rate in ("640.5", "512.0", "300.0", "904.9", "921.1", "847.7"):
        assert f"{rate}</td>" in page
    assert "imported from Ann" in page
    assert "rejected by a check" in page
    assert "1 line is no event" in page
    assert page.count("run over this: ") == 2 * 6, "two are invalid, and out of every ratio"


def test_each_opens_its_record_with_the_line_that_it_was_read_from(five_kinds):
    project, inputs = five_kinds
    page = table(project, inputs, "imported")
    ids = re.findall(r'<tr id="([^"]*)"', page)
    assert len(ids) == len(set(ids)) == len(inputs.imported(STUDY).records)
    assert {one.rpartition("/")[0] for one in ids} == {f"{STUDY}/imported/gaudi2/{CELL}"}
    (packed,) = re.findall(r'data-packed="([^"]*)"', page)
    told = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert {*told} == {"Imported from", "Line", "Record"}
    (log,) = [one for one in ids if "slurm-1.out" in told["Imported from"][one]]
    assert told["Line"][log].startswith("slurm-1.out:4: ")
    assert told["Record"][log]["trainer"]["samples_per_s"] == 640.5
    assert re.findall(r'href="#([^"]*)"', page) == ids
    measured = f'href="../../overview.html#{STUDY}/gaudi2/{CELL}"'
    assert page.count(measured) == len(ids), "the measured rate beside it leads to its runs"


def test_medians_in_the_published_table_and_in_the_figure_open_their_records(five_kinds):
    page = table(*five_kinds, "published")
    imported = page[page.index("Imported (") : page.index("Measured here (")]
    cell = f"{STUDY}/imported/gaudi2/{CELL}"
    assert f'href="../../overview.html#{cell}"' in imported
    assert f'data-record="{cell}"' in figure(*five_kinds, "throughput")
    assert table(*five_kinds, "imported").count(f'id="{cell}"') == 1


def test_the_published_table_has_them_marked_in_a_group_of_their_own(five_kinds):
    page = table(*five_kinds, "published")
    published, imported, measured = (
        page.index(word) for word in ("Published (", "Imported (", "Measured here (")
    )
    assert published < imported < measured
    assert "milabench" in page[imported:measured]


def test_the_published_table_counts_the_runs_that_it_shows(five_kinds):
    project, inputs = five_kinds
    file = inputs.path("imported.json")
    found = read_document(file, Imported)
    shown = [one for one in found.records if one.status == "ok"]
    for one in shown[1:]:
        one.levels.clear()
    write_json(file, msgspec.to_builtins(found))
    page = table(project, inputs, "published")
    imported = page[page.index("Imported (") : page.index("Measured here (")]
    assert "1 run, by" in imported
    assert "medians" not in imported


def test_the_figure_has_a_panel_of_them(five_kinds):
    assert "Imported: runs of others" in figure(*five_kinds, "throughput")


def test_without_imports_pages_say_nothing_of_them(project, inputs):
    assert "Imported" not in table(project, inputs, "published")
    assert "Imported" not in figure(project, inputs, "throughput")


def test_a_study_with_imports_has_the_table_once():
    study = make_project().studies[STUDY]
    plain = msgspec.structs.replace(study, tables=[t for t in study.tables if t.kind != KIND])
    entry = Import(folder="x", study=STUDY, device="cpu")
    assert with_page(plain, STUDY, []) is plain
    shown = with_page(plain, STUDY, [entry])
    assert shown.tables[-1] is PAGE
    assert with_page(shown, STUDY, [entry]) is shown
