"""The stages of first-hour: how one is stopped, and what its line says."""

import os
from types import SimpleNamespace

import pytest

from feedrate.__main__ import main
from feedrate.cli import first_hour
from feedrate.results.files import CELLS, with_factors, write_csv

CELL = "workers=1~decode=host"


@pytest.fixture
def line(tmp_path, monkeypatch):
    """The line of a cell's stage: its command ends with a code and an output, and makes results on
    these devices. There are results of before."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "results/mini/cells.csv"

    def write(devices, rate):
        cell = {"study": "mini", "cell": CELL, "status": "ok", "runs": 1, "ok_runs": 1}
        rows = [cell | {"device": device, "samples_per_s": rate} for device in devices]
        write_csv(file, with_factors(CELLS, {}), rows)

    def of(devices, code=0, text=""):
        write(["cpu", "h100"], 1.0)
        os.utime(file, (1, 1))

        def run_for(*_):
            if devices:
                write(devices, 250.0)
            return code, text

        monkeypatch.setattr(first_hour, "run_for", run_for)
        hour = first_hour.Hour([], 1000.0, devices)
        runs = [SimpleNamespace(study="mini", device=device, cell=CELL) for device in devices]
        runs = runs or [SimpleNamespace(study="mini", device="cpu", cell=CELL)]
        hour.run("mini:workers=1", ["run"], runs)
        return first_hour.STATUS.read_text().strip().partition(" s  ")[2], hour.has_failed

    return of


def test_a_stage_that_failed_without_results_shows_its_last_line(line):
    said, has_failed = line([], 1, "Building\n\nfeedrate: the disk is full")
    assert said == f"{'failed':<12}mini:workers=1: feedrate: the disk is full"
    assert has_failed


def test_of_several_devices_each_result_has_its_device(line):
    assert "mini:workers=1: 250 samples/s" in line(["cpu"])[0]
    said, _ = line(["cpu", "h100"])
    assert "cpu: 250 samples/s" in said
    assert "h100: 250 samples/s" in said


def test_the_self_tests_of_all_devices_take_a_quarter_of_the_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = []
    monkeypatch.setattr(
        first_hour, "run_for", lambda words, *_: (commands.append(words), (0, ""))[1]
    )
    first_hour.Hour([], 20.0, ["cpu", "h100"]).run("selftest", ["selftest"])
    assert commands[0][-2:] == ["--minutes", "2.5"]


def test_a_stage_is_stopped_as_by_ctrl_c_so_that_it_can_end_its_jobs(tmp_path):
    log = tmp_path / "log"
    words = f"trap 'kill $!; touch {tmp_path}/ended; exit' INT; echo at work; sleep 60 & wait"
    assert first_hour.run_for(["bash", "-c", words], log, 2.0) == (None, "at work")
    assert (tmp_path / "ended").exists()


def test_a_wrong_type_of_devices_is_one_sentence(monkeypatch, request, capsys):
    monkeypatch.chdir(request.config.rootpath)
    assert main(["first-hour", "--config", "devices=3"]) == 1
    said = capsys.readouterr().err
    assert "devices" in said
    assert said.count("\n") == 1
