"""The programs of rules: options from a function's parameters, and how a program ends."""

import errno
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_origin

import msgspec
import pytest

from feedrate import __main__ as entry
from feedrate.cli import jobs
from feedrate.config.errors import ConfigError
from feedrate.core.errors import SENTENCE
from feedrate.data.manifest import DataError


class Settings(msgspec.Struct):
    """A job's settings."""

    steps: int


@pytest.fixture
def run(monkeypatch):
    """Runs a function as the job `x`."""

    def run(function, *words):
        monkeypatch.setitem(jobs.JOBS, "x", "some.module:function")
        monkeypatch.setattr(jobs, "import_module", lambda _: SimpleNamespace(function=function))
        return jobs.run("x", [str(word) for word in words])

    return run


@pytest.fixture
def given():
    """What a job was called with."""
    return {}


@pytest.fixture
def job(given):
    def job(
        spec: dict[str, Any],
        runs: list[Path],
        out: Path,
        *,
        keep_weights: bool = False,
        try_: int | None = None,
        names: list[str] | None = None,
        place: str = "here",
    ) -> None:
        """Do a job."""
        given.update(
            spec=spec, runs=runs, out=out, keep_weights=keep_weights, try_=try_, names=names
        )
        given["place"] = place

    return job


NEEDED = ("--spec", '{"steps": 3}', "--runs", "a", "b", "--out", "o/x.json")


def test_parameters_are_options(run, job, given):
    assert run(job, *NEEDED) == 0
    assert given == {
        "spec": {"steps": 3},
        "runs": [Path("a"), Path("b")],
        "out": Path("o/x.json"),
        "keep_weights": False,
        "try_": None,
        "names": None,
        "place": "here",
    }
    more = ("--keep-weights", "--try", 2, "--names", "p", "q", "--place", "there")
    assert run(job, *NEEDED, *more) == 0
    assert (given["keep_weights"], given["try_"], given["place"]) == (True, 2, "there")
    assert given["names"] == ["p", "q"]


@pytest.mark.parametrize("left_out", [0, 2, 5])
def test_a_parameter_without_a_default_is_required(run, job, left_out, capsys):
    words = list(NEEDED)
    del words[left_out : left_out + (3 if left_out == 2 else 2)]
    with pytest.raises(SystemExit) as ended:
        run(job, *words)
    assert ended.value.code == 2
    assert NEEDED[left_out] in capsys.readouterr().err


def test_options_can_stand_in_a_file_with_a_word_a_line(run, job, given, tmp_path):
    (tmp_path / "words").write_text("\n".join(NEEDED) + "\n")
    assert run(job, f"@{tmp_path / 'words'}", "--place", "there") == 0
    assert (given["runs"], given["place"]) == ([Path("a"), Path("b")], "there")


def settings_job(spec: Settings, out: Path = Path("o")) -> None:
    """Check that the settings are of their type."""
    assert isinstance(spec, Settings)


def test_settings_are_json_or_a_json_file(run, tmp_path):
    assert run(settings_job, "--spec", '{"steps": 3}') == 0
    (tmp_path / "spec.json").write_text('{"steps": 3}')
    assert run(settings_job, "--spec", tmp_path / "spec.json") == 0


@pytest.mark.parametrize("text", ['{"steps": "many"}', '{"steps": 3', "[", "no/such/file"])
def test_wrong_settings_are_one_sentence_that_names_the_option_or_file(run, capsys, text, tmp_path):
    assert run(settings_job, "--spec", text) == 1
    said = capsys.readouterr().err
    assert said.startswith("feedrate x: --spec: ")
    assert said.count("\n") == 1
    file = tmp_path / "spec.json"
    file.write_text(text)
    assert run(settings_job, "--spec", file) == 1
    assert capsys.readouterr().err.startswith(f"feedrate x: {file}: ")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConfigError("a.yaml: x"), "a.yaml: x"),
        (DataError("no data"), "no data"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "the disk is full at /x/y: "),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full at some/raw: "),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: permission denied"),
    ],
)
def test_an_expected_failure_is_one_sentence(run, capsys, error, says):
    def fails(out: Path) -> None:
        raise error

    assert run(fails, "--out", "some/raw/index.json") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"feedrate x: {says}")
    assert said.count("\n") == 1
    assert SENTENCE.findall(f"host: n1\n{said}slurmstepd: error: x\n")[-1].startswith(says.rstrip())


def test_an_interrupt_ends_quietly(run, capsys):
    def stopped() -> None:
        raise KeyboardInterrupt

    assert run(stopped) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", jobs.JOBS)
def test_every_job_is_a_documented_function_with_options(name):
    parser = jobs.parser(name, jobs.imported(jobs.JOBS[name]))
    assert parser.description
    for action in parser._actions:
        if action.metavar == "SETTINGS":  # read as JSON, which a list of files is not
            assert get_origin(action.type.args[0]) is not Sequence


def test_people_see_only_their_commands(capsys):
    assert not set(jobs.JOBS) & set(entry.COMMANDS)
    with pytest.raises(SystemExit):
        entry.main(["--help"])
    text = capsys.readouterr().out
    assert not set(jobs.JOBS) & set(text.split())


def test_a_job_needs_neither_rich_nor_snakemake_nor_what_it_does_not_use():
    script = (
        "import sys; from feedrate.__main__ import main\n"
        "main(['fetch_checkpoint', '--name', 'x', '--revision', 'y', '--out', '/dev/full/x'])\n"
        "heavy = ('rich', 'snakemake', 'torch', 'pandas', 'matplotlib', 'pyarrow')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
