import subprocess
import sys

import pytest
from report_samples import STUDY, make_project, write_results

import warm
from feedrate.report import command, settings
from feedrate.report.settings import TableSettings


def call(module, *arguments, cwd):
    return subprocess.run(
        [warm.python(), "-m", f"feedrate.report.{module}", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def test_table_figure_and_overview_from_the_command_line(tmp_path, project):
    files = write_results(tmp_path, project)
    param = settings.table_settings(project, STUDY, "cells")
    made = call("table", "--settings", param, "--out", "out/cells.html", *files, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "14.10" in (tmp_path / "out/cells.html").read_text()
    param = settings.figure_settings(project, STUDY, "answer")
    made = call("figure", "--settings", param, "--out", "out/answer.svg", *files, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "out/answer.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("module", ["table", "figure", "overview"])
def test_wrong_settings_end_with_a_sentence(tmp_path, module):
    made = call(module, "--settings", "{'study': 1}", "--out", "x", cwd=tmp_path)
    assert made.returncode == 1
    assert made.stderr.startswith(f"feedrate.report.{module}: --settings: ")
    assert "Traceback" not in made.stderr
    assert not (tmp_path / "x").exists()


def test_a_missing_input_ends_with_a_sentence(tmp_path, capsys):
    param = settings.table_settings(make_project(), STUDY, "cells")

    def write(read, inputs, out):
        inputs.cells(read.study)

    arguments = ["--settings", repr(param), "--out", str(tmp_path / "x")]
    assert command.run("feedrate.report.table", "d", TableSettings, write, arguments) == 1
    assert capsys.readouterr().err == (
        "feedrate.report.table: cells.csv is needed, but is not among the input files (none)\n"
    )


def test_tables_start_without_heavy_imports(tmp_path):
    code = (
        "import sys, feedrate.report.table, feedrate.report.settings; "
        "print([m for m in ('torch', 'pandas', 'matplotlib', 'numpy', 'docutils') "
        "if m in sys.modules])"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert made.stdout.strip() == "[]"
