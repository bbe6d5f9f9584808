"""The command line: what each command takes, passes on to Snakemake, and says."""

import argparse
import os
import signal
import stat
import subprocess
import sys

import msgspec
import pytest

from feedrate import __main__ as entry
from feedrate.cli import run
from feedrate.cli.jobs import STOPPED
from feedrate.cli.snakemake import run_snakemake, snakemake_arguments
from feedrate.core.variables import DriverCall
from feedrate.flow import driver

NOTHING = dict.fromkeys(("study", "device", "dataset"))
CHOICES = argparse.Namespace(profile="local", configfile=[], config=[], **NOTHING)
RUN = "feedrate_0a1b2c3d-0000-4000-8000-000000000000"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root without configuration, with a folder for stand-ins of Slurm's commands
    first on PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("feedrate.cli.snakemake.check_configuration", lambda *_: None)
    (tmp_path / "Snakefile").write_text("")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def program(root, name, script):
    path = root / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def queue(root, *jobs):
    """A squeue that knows these jobs: number, state, node, name, comment, folder."""
    rows = [
        "\x1f".join([number, state, "None", node, "1:00:00", "0:10", "1G", name, comment, folder])
        for number, state, node, name, comment, folder in jobs
    ]
    (root / "queue").write_text("\n".join(rows) + "\n")
    program(root, "squeue", f"cat {root}/queue")
    program(root, "scancel", f'echo "$@" >> {root}/cancelled')


@pytest.fixture
def snakemake(monkeypatch):
    """Calls of Snakemake, each answered with exit code 0."""
    calls = []

    def run_snakemake(options, *words, **more):
        calls.append((snakemake_arguments(options, *words), more))
        return 0

    for module in ("run", "snakemake"):
        monkeypatch.setattr(f"feedrate.cli.{module}.run_snakemake", run_snakemake)
    return calls


def test_outside_the_project_it_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert entry.main(["run"]) == 2
    assert "there is no Snakefile here" in capsys.readouterr().err


def parsed(arguments):
    """What Snakemake reads in its arguments, the profile left out."""
    from snakemake.cli import parse_args  # it takes seconds: not for all workers

    assert arguments[0] == "--profile"
    return parse_args(arguments[2:])[1]


@pytest.mark.parametrize(
    "spelling", ["-n", "--dry-run", "--dryrun", "-np", "-pn", "-n --quiet", "-nq", "--dryrun -q"]
)
def test_a_dry_run_in_any_of_snakemakes_spellings_counts_jobs_and_runs(
    root, snakemake, monkeypatch, spelling
):
    shown = []
    monkeypatch.setattr(run, "show_outlook", lambda *_: shown.append(1))
    assert entry.main(["run", *spelling.split(), "--config", "repeats=1"]) == 0
    ((arguments, options),) = snakemake
    found = parsed(arguments)
    assert found.dryrun
    assert "RULES" in {one.name for one in found.quiet}
    assert not {"ALL", "PROGRESS"} & {one.name for one in found.quiet}
    assert not options.get("held_back"), "how many jobs would run is shown"
    assert shown == [1]


@pytest.mark.parametrize("quiet", ["--quiet", "-q", "-q all"])
def test_a_quiet_run_shows_errors_only(root, snakemake, quiet):
    assert entry.main(["run", "all", *quiet.split()]) == 0
    ((arguments, options),) = snakemake
    found = parsed(arguments)
    assert {one.name for one in found.quiet} == {"ALL"}
    assert found.targets == ["all"]
    assert options["held_back"]


def test_choices_become_configuration_and_the_rest_goes_on(root, snakemake):
    """In one word: of several --config Snakemake takes the last one alone."""
    for name in ("f.yaml", "g.yaml"):
        (root / name).write_text("")
    command = "run --profile gaudi --config repeats=1 --device h100 --device cpu --study a"
    command += " --dataset d --configfile f.yaml g.yaml -C checkpoint=null --jobs 3 all"
    assert entry.main(command.split()) == 0
    ((arguments, options),) = snakemake
    assert " ".join(arguments) == (
        "--profile gaudi --jobs 3 all --configfile f.yaml g.yaml "
        "--config studies=[a] devices=[h100,cpu] dataset=d repeats=1 checkpoint=null"
    )
    assert options["held_back"] is False


@pytest.mark.parametrize(
    ("page", "targets", "shown"),
    [("", [], False), ("old", [], True), ("new", ["mini"], True), ("old", ["measure"], False)],
)
def test_a_page_that_the_targets_did_not_make_is_not_shown(root, monkeypatch, page, targets, shown):
    """With nothing to do, that of an earlier call is."""
    file, pages = root / "report.html", []
    if page:
        file.write_text("")
        os.utime(file, (1, 1))

    def run_snakemake(*_, **__):
        if page == "new":
            file.write_text("")
        return 0

    monkeypatch.setattr(run, "run_snakemake", run_snakemake)
    monkeypatch.setattr(run, "show", pages.append)
    assert entry.main(["run", *targets]) == 0
    assert len(pages) == shown
    assert file.exists() == bool(page), "nothing but the workflow writes it"


def test_a_run_beside_another_one_starts_nothing(root, snakemake, capsys):
    call = DriverCall(pid=12, host="login7", since="1800000000.0")
    driver.LOCK.parent.mkdir()
    driver.LOCK.write_bytes(msgspec.json.encode(call))
    assert entry.main(["run", "--profile", "gaudi"]) == 3
    text = capsys.readouterr().err
    assert "process 12 on login7" in text
    assert len(text.splitlines()) == 1
    assert snakemake == []


def test_cancel_says_why_it_could_not(root, capsys):
    queue(root, ("7", "RUNNING", "n1", RUN, "rule_x", str(root)))
    program(root, "scancel", "echo 'scancel: error: Access denied' >&2; exit 1")
    assert entry.main(["cancel"]) == 1
    assert "Access denied" in capsys.readouterr().err


def test_jobs_of_a_living_driver_are_cancelled_only_by_force(root, capsys):
    hold = (
        "from feedrate.flow import driver; from feedrate.core.variables import DriverCall\n"
        "import os; host = os.uname().nodename\n"
        "driver.lock_folder(DriverCall(pid=os.getpid(), host=host, since='1'))\n"
        "print('held', flush=True); input()"
    )
    words = [sys.executable, "-c", hold]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"held\n"
        queue(root, ("7", "RUNNING", "n1", RUN, "rule_x", str(root)))
        assert entry.main(["cancel"]) == 3
        assert f"process {other.pid} on " in capsys.readouterr().err
        assert not (root / "cancelled").exists()
        assert entry.main(["cancel", "--force"]) == 0
        assert (root / "cancelled").read_text() == "7\n"
    finally:
        other.communicate()


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("wrong", [["--unknown"], ["--retries", "often"], ["--resources", "a=b"]])
def test_an_option_that_nobody_takes_is_told_before_anything_starts(
    root, snakemake, command, wrong, capsys
):
    assert entry.main([command, *wrong]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("feedrate: ")
    assert wrong[0] in said[0]
    assert snakemake == []


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Replaces Snakemake, as a child process, by the given program."""

    def _write(program: str) -> None:
        package = tmp_path / "snakemake"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "__main__.py").write_text(program)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return _write


def test_a_stop_signal_that_comes_twice_at_once_interrupts_snakemake_once(stand_in, tmp_path):
    """As make's children get it: from the sender, and from make."""
    stand_in(f"""
import os, pathlib, signal, time
received = []
signal.signal(signal.SIGINT, lambda *_: received.append(1))
for _ in range(2):
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(0.5)
pathlib.Path({str(tmp_path / "received")!r}).write_text(str(len(received)))
""")
    assert run_snakemake(CHOICES) == STOPPED
    assert (tmp_path / "received").read_text() == "1"


def test_snakemake_obeys_interrupts_that_a_background_job_ignores(stand_in, tmp_path):
    """A shell starts `make run &` in a script with SIGINT ignored."""
    stand_in(f"""
import pathlib, signal
handler = signal.getsignal(signal.SIGINT)
pathlib.Path({str(tmp_path / "handler")!r}).write_text(handler.__name__)
""")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_snakemake(CHOICES) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "handler").read_text() == "default_int_handler"


def test_of_what_snakemake_says_the_sentence_is_shown(stand_in, capsys):
    said = "print('Using profile gaudi for setting\\nwhat is wrong', file=sys.stderr)"
    stand_in(f"import sys\n{said}\nsys.exit(2)\n")
    assert run_snakemake(CHOICES, held_back=True) == 2
    assert capsys.readouterr().err == "what is wrong\n"
