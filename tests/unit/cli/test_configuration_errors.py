"""A wrong configuration ends a command before Snakemake starts, however quiet it is."""

import shutil
from pathlib import Path

import pytest

from feedrate import __main__ as entry
from feedrate.cli import run
from feedrate.config.errors import ConfigError
from feedrate.flow import driver
from feedrate.flow.configuration import read_profile

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root with the configuration as committed and the results of an earlier run."""
    for part in ("config", "profiles"):
        shutil.copytree(ROOT / part, tmp_path / part)
    for link in ROOT.iterdir():
        if link.is_symlink():
            (tmp_path / link.name).symlink_to(link.readlink())
    (tmp_path / "Snakefile").write_text("")
    (tmp_path / "report.html").write_text("")
    (tmp_path / ".snakemake").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def snakemake(monkeypatch):
    """Calls of Snakemake, which all fail; `started`: after the first job has begun."""
    calls = []

    class Calls:
        started = False

        def __len__(self):
            return len(calls)

    answers = Calls()

    def run_snakemake(*words, **_):
        calls.append(words)
        if answers.started:
            driver.STARTED.touch()
        return 1

    for module in ("run", "snakemake"):
        monkeypatch.setattr(f"feedrate.cli.{module}.run_snakemake", run_snakemake)
    return answers


@pytest.mark.parametrize("command", ["run", "run --quiet", "run --dry-run", "plan"])
def test_no_command_starts_with_a_wrong_configuration(root, snakemake, capsys, command):
    (root / "mine.yaml").write_text("repeats: three\n")
    assert entry.main([*command.split(), "--configfile", "mine.yaml"]) == 1
    said = capsys.readouterr()
    assert said.err == (
        "feedrate: mine.yaml: repeats: 'three' is not allowed; expected int | null\n"
    )
    assert (said.out, len(snakemake)) == ("", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--profile", "gaudy"],
            "--profile: 'gaudy' is not allowed; did you mean gaudi? profiles:",
        ),
        (["--configfile", "nope.yaml"], "nope.yaml: no such file or directory"),
        (["--study", "vit"], "command line: studies[0]: 'vit' is not allowed"),
        (["--device", "h1000"], "command line: devices[0]: 'h1000' is not allowed"),
        (["vit-speedups"], "config/config.yaml: studies: vit-speedups is not among them"),
        (["--config", "devices=[cpu"], "command line: devices: '[cpu' is not a value of YAML"),
    ],
)
def test_a_wrong_choice_is_one_sentence(root, snakemake, capsys, arguments, message):
    assert entry.main(["run", *arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"feedrate: {message}")
    assert len(said.splitlines()) == 1
    assert len(snakemake) == 0


@pytest.mark.parametrize(("option", "key"), [("--study", "studies"), ("--device", "devices")])
def test_a_wrong_word_of_fits_is_one_of_the_command_line(root, capsys, option, key):
    assert entry.main(["fits", option, "zz"]) == 1
    assert f"feedrate: command line: {key}[0]: 'zz' is not allowed" in capsys.readouterr().err


def test_an_error_of_a_profiles_choices_names_them(root, snakemake, capsys):
    file = root / "profiles/gaudi/choices.yaml"
    file.write_text(file.read_text().replace("dataset: hub", "dataset: hub\ndataset: hub"))
    assert entry.main(["run", "--profile", "gaudi"]) == 1
    assert "profiles/gaudi/choices.yaml, line " in capsys.readouterr().err
    assert len(snakemake) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- cpu\n", "['cpu'] is not allowed; expected keys with values"),
        ("word\n", "'word' is not allowed; expected keys with values"),
        ("configfile: 5\n", "configfile: 5 is not allowed; expected list"),
        ("configfile: [5]\n", "configfile[0]: 5 is not allowed; expected str"),
        (f"configfiles: {'x' * 300}\n", "configfiles: 'xxx"),
    ],
)
@pytest.mark.parametrize("command", ["run", "doctor"])
def test_a_profile_that_says_nothing_is_one_sentence(root, capsys, command, text, message):
    (root / "profiles/mine").mkdir()
    (root / "profiles/mine/config.yaml").write_text(text)
    assert entry.main([command, "--profile", "profiles/mine"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"feedrate: profiles/mine/config.yaml: {message}")


@pytest.mark.parametrize("profile", ["gaudi", "profiles/slurm"])
def test_a_study_named_by_an_option_is_selected_by_it(root, snakemake, profile):
    entry.main(["run", "--profile", profile, "--study", "vit-speedups", "vit-speedups"])
    assert len(snakemake) == 1


@pytest.mark.parametrize("started", [False, True])
def test_old_results_are_shown_only_after_a_run_that_began(root, snakemake, monkeypatch, started):
    monkeypatch.setattr(run, "report_on_what_exists", lambda *_, **__: None)
    driver.STARTED.touch()  # by the run before
    shown = []
    monkeypatch.setattr(run, "show", shown.append)
    snakemake.started = started
    assert entry.main(["run"]) == 1
    assert (len(snakemake), len(shown)) == (1, int(started))


def test_a_profile_without_its_link_is_told_how_to_use_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "profiles/mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("executor: local\n")
    with pytest.raises(ConfigError, match="ln -s profiles/mine"):
        read_profile("mine")
    (tmp_path / "mine").symlink_to(folder)
    assert read_profile("mine") == ("local", [])
