"""The command doctor: what it looks at, shows and returns, and what Slurm offers."""

from pathlib import Path

import pytest

from feedrate import __main__ as entry
from feedrate.cli import doctor
from feedrate.core import variables
from feedrate.devices import host
from feedrate.devices.doctor import Finding

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine with an empty PATH and no accelerators, in the project's root."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("DEV", "PROC", "SYS"):
        monkeypatch.setattr(host, name, tmp_path / name)
    monkeypatch.setenv(variables.DETECTED, "")  # what a test leaves there is taken away again
    for name in (variables.DETECTED, "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def examined(monkeypatch):
    """What is found, and the devices and studies of each call."""
    calls, found = [], []

    def examine(project, specs, *, runs_here):
        studies = sorted({spec.study for spec in specs})
        calls.append((project.config.devices, studies, runs_here))
        return list(found)

    monkeypatch.setattr(doctor, "examine", examine)
    return calls, found


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_on_this_machine_nothing_fails(capsys):
    assert entry.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "cpu: packages: torch " in said
    assert "will fail" not in said


def test_one_study_and_one_device_can_be_chosen(examined):
    calls, _ = examined
    assert entry.main(["doctor", "--study", "vit-speedups", "--device", "cpu-x2"]) == 0
    assert calls == [(["cpu-x2"], ["vit-speedups"], True)]


def test_what_will_fail_comes_first_with_its_remedy(examined, capsys):
    _, found = examined
    found += [Finding("fine", "Python", "3.12"), Finding("will fail", "disk", "full", "free some")]
    assert entry.main(["doctor"]) == 1
    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["will", "fail", "disk:", "full"]
    assert second.strip() == "free some"
    assert last.startswith("1 will fail, ")


def test_a_study_that_is_not_configured_fails_nobody(examined, capsys):
    _, found = examined
    found += [Finding("will fail", "cpu: x", "absent", "install", studies=["vit-speedups"])]
    assert entry.main(["doctor"]) == 0
    assert "cpu: x: absent (vit-speedups)" in capsys.readouterr().out
    assert entry.main(["doctor", "--study", "vit-speedups"]) == 1


def test_accelerators_that_are_not_configured_are_examined_too(examined, machine):
    row = "NVIDIA H100 80GB HBM3, GPU-0, 00000000:00:00.0, Disabled"
    program(machine, "nvidia-smi", f'case "$*" in *=name*) echo "{row}";; *) exit 2;; esac')
    calls, _ = examined
    entry.main(["doctor", "--study", "vit-speedups"])
    assert [devices for devices, _, _ in calls] == [["cpu"], ["h100-x1"]]


@pytest.mark.parametrize(("key", "value"), [("studies", "[nosuch]"), ("devices", "null")])
def test_what_run_refuses_is_the_one_finding(examined, tmp_path, capsys, key, value):
    (tmp_path / "mine.yaml").write_text(f"{key}: {value}\n")
    chosen = ["--configfile", str(tmp_path / "mine.yaml")]
    assert entry.main(["run", "-n", *chosen]) == 1
    refusal = capsys.readouterr().err.partition(": ")[2].strip()
    assert entry.main(["doctor", *chosen]) == 1
    assert f"will fail     configuration: {refusal}\n" in capsys.readouterr().out
    assert examined[0] == []


# Slurm


@pytest.fixture
def cluster(machine, monkeypatch):
    """A Slurm whose commands print an error, or nothing; what sbatch was asked is in `asked`."""
    monkeypatch.setenv("PATH", f"{machine}:/usr/bin:/bin")  # Snakemake's executor runs `which`

    def answer(error: str = "", *, sinfo: str = "") -> Path:
        nodes = (
            "cpu* up infinite 2000000 256 0/4/0/4 (null)\n"
            "gaudi2 up infinite 2000000 256 0/4/0/4 gpu:8"
        )
        for name, text, output in (("sbatch", error, ""), ("sinfo", sinfo, nodes)):
            say = f"echo '{text}' >&2; exit 1" if text else f"echo '{output}'"
            program(machine, name, f'echo "$@" >> {machine}/{name}.asked\n{say}')
        return machine / "sbatch.asked"

    return answer


def line_of(subject: str, capsys) -> str:
    (line,) = [row for row in capsys.readouterr().out.splitlines() if f"{subject}: " in row]
    return line


def test_a_controller_that_does_not_answer_is_unknown(examined, cluster, capsys):
    cluster(sinfo="sinfo: error: Unable to contact slurm controller")
    assert entry.main(["doctor", "--profile", "gaudi"]) == 0
    line = line_of("Slurm", capsys)
    assert line.startswith("unknown")
    assert "Unable to contact slurm controller" in line


def test_without_sbatch_a_cluster_profile_fails_but_inside_a_job_the_node_is_examined(
    examined, monkeypatch, capsys
):
    assert entry.main(["doctor", "--profile", "slurm"]) == 1
    assert "no sbatch" in capsys.readouterr().out
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    entry.main(["doctor", "--profile", "gaudi"])
    assert [here for _, _, here in examined[0]] == [False, True]
