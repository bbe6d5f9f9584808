"""`feedrate import`: what it prints, remembers and refuses."""

import json

import foreign_runs as foreign
import pytest

from feedrate import __main__
from feedrate.config.errors import ConfigError
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import paths

WHERE = ["--study", "bridgetower-dataloading", "--device", "gaudi2"]


@pytest.fixture
def root(root, tmp_path, monkeypatch):
    """A folder with the project's configuration, and none of its results."""
    for name in ("config", "Snakefile", "workflow"):
        (tmp_path / name).symlink_to(root / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_runs_are_shown_and_remembered_once(root, capsys):
    logs = foreign.trainer_folder(root / "logs", total_flos=1e15)
    words = [
        "import",
        str(logs),
        *WHERE,
        "--level",
        "workers=2",
        "--batch-size",
        "48",
        "--source",
        "2023",
    ]
    assert __main__.main(words) == 0
    shown = capsys.readouterr().out
    assert "847.7" in shown
    assert "model.safetensors: no format" in shown
    assert __main__.main(words) == 0
    (entry,) = json.loads((root / paths.IMPORTS).read_text())
    assert (entry["levels"], entry["batch_size"]) == ({"workers": 2}, 48)
    config = read_yaml(root / "config/config.yaml", "config.yaml")
    project = load_project(root, config)
    assert [one.folder for one in project.config.imports] == [str(logs)]
    assert project.studies["bridgetower-dataloading"].tables[-1].kind == "imported"


def test_a_dry_run_remembers_nothing(root):
    logs = foreign.milabench_file(root / "logs")
    assert __main__.main(["import", str(logs), *WHERE, "--dry-run"]) == 0
    assert not (root / paths.IMPORTS).exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["absent", *WHERE], "absent: no such folder or file"),
        (["empty", *WHERE], "no run in it"),
        (["empty", *WHERE, "--level", "worker=2"], "did you mean workers?"),
        (["empty", *WHERE, "--level", "workers"], "expected FACTOR=LEVEL"),
        (["empty", *WHERE, "--level", "workers=-1"], "levels.workers"),
        (["empty", *WHERE, *["--level", "workers=2"] * 2], "--level workers: not allowed; it is"),
        (["empty", *WHERE, "--batch-size", "0"], "batch_size: 0 is not allowed; the smallest"),
        (["empty", *WHERE, "--flops-per-sample", "0"], "flops_per_sample: 0 is not allowed"),
        (["empty", *WHERE[:3], "gaudy2"], "did you mean gaudi2?"),
        (["empty", "--study", "bridgetower", *WHERE[2:]], "files in config/studies"),
    ],
)
def test_what_is_wrong_is_one_sentence(root, capsys, words, told):
    (root / "empty").mkdir()
    assert __main__.main(["import", *words]) in (1, 2)
    assert told in capsys.readouterr().err
    assert not (root / paths.IMPORTS).exists()


def test_a_wrong_entry_of_the_configuration_names_its_key(root):
    config = read_yaml(root / "config/config.yaml", "config.yaml")
    entry = {"folder": "x", "study": "nothing", "device": "cpu"}
    with pytest.raises(ConfigError, match=r"config.yaml: imports\[0\].study: 'nothing'"):
        load_project(root, config | {"imports": [entry]})
