"""The configuration of a call: which file a key comes from, and the files that must exist."""

import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan
from feedrate.flow import configuration
from feedrate.flow.configuration import check_files, check_targets, read_layers

ROOT = Path(__file__).resolve().parents[3]
STUDY = "config/studies/bridgetower-dataloading.yaml"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's configuration, which a test may edit, as the working directory."""
    for part in ("config", "profiles"):
        shutil.copytree(ROOT / part, tmp_path / part)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, text):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def edit(name, old, new):
    text = Path(name).read_text(encoding="utf-8")
    assert old in text
    Path(name).write_text(text.replace(old, new, 1), encoding="utf-8")


def passes(*files, assignments=(), runs_here=True, targets=()):
    """Read, plan and check the configuration."""
    layers = read_layers(map(Path, files), assignments)
    project = configuration.load(Path(), layers)
    plan = make_plan(project)
    check_targets(Path(), project, layers, targets)
    check_files(project, list(plan.runs.values()), layers, runs_here=runs_here)


def error(*files, **options):
    """The message that this ends in."""
    with pytest.raises(ConfigError) as caught:
        passes(*files, **options)
    return str(caught.value)


def test_later_files_override_earlier_ones_key_by_key(root):
    write("one.yaml", "datasets: {generated: {seed: 3, test: 9}}\nrepeats: 1\n")
    write("two.yaml", "datasets: {generated: {seed: 4}}\n")
    found = read_layers([Path("one.yaml"), Path("two.yaml")], ["repeats=2", "checkpoint=null"])
    generated = found.values["datasets"]["generated"]
    assert (generated["seed"], generated["test"], generated["grey_share"]) == (4, 9, 0.6)
    assert (found.values["repeats"], found.values["checkpoint"]) == (2, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("repeats: three\n", "mine.yaml: repeats: 'three' is not allowed; "),
        ("repeats: 1\nrepeats: 2\n", "mine.yaml, line 2: the key 'repeats' occurs twice"),
        ("datasets:\n\tx: 1\n", "mine.yaml, line 2: "),
        ("devices: [cpu\n", "mine.yaml, line 2: "),
        ("", "mine.yaml: the file is empty"),
        ("dataset: hubb\n", "mine.yaml: dataset: 'hubb' is not allowed; did you mean hub?"),
        ("checkpoint_revision: main\n", "mine.yaml: checkpoint_revision: it is given, but"),
    ],
)
def test_an_error_in_a_configfile_names_that_file(root, text, message):
    write("mine.yaml", text)
    assert error("mine.yaml").startswith(message)


def test_an_error_of_config_yaml_names_it_beside_other_files(root):
    write("mine.yaml", "repeats: 1\n")
    edit("config/config.yaml", "on_driver: [short]", "on_driver: [shrt]")
    assert error("mine.yaml").startswith("config/config.yaml: on_driver[0]: 'shrt' is not allowed")


def test_a_study_that_is_not_selected_is_named_as_such(root):
    message = error(targets=["all", "vit-speedups"])
    assert message.startswith("config/config.yaml: studies: vit-speedups is not among them; add it")
    assert "STUDY=vit-speedups" in message
    passes(assignments=["studies=[vit-speedups]"], targets=["vit-speedups", "results/x"])


MINE = """
dataset: mine
datasets:
  mine: {source: folder, path: data/mine, tables: "*.csv", image: "{picture}.jpg",
         columns: {caption: text}, split: part}
"""


@pytest.mark.parametrize(
    ("table", "header", "message"),
    [
        (None, "", "mine.yaml: datasets.mine.path: there is no folder 'data/mine'"),
        ("a.tsv", "text", "mine.yaml: datasets.mine.tables: no file in "),
        ("a.csv", "", "mine.yaml: datasets.mine.tables: "),
        ("a.csv", "picture,part", "mine.yaml: datasets.mine.columns.caption: a.csv has no column"),
        ("a.csv", "text,part", "mine.yaml: datasets.mine.image ({picture}): a.csv has no column"),
        ("a.csv", "text,picture", "mine.yaml: datasets.mine.split: a.csv has no column 'part'"),
    ],
)  # fmt: skip
def test_a_dataset_that_is_not_there_is_an_error_of_the_plan(root, table, header, message):
    write("mine.yaml", MINE)
    if table:
        write(f"data/mine/{table}", f"{header}\n")
    assert error("mine.yaml").startswith(message)


def test_a_dataset_that_is_there_or_not_selected_passes(root):
    write("mine.yaml", MINE.replace("dataset: mine", "dataset: generated"))
    passes("mine.yaml")
    write("mine.yaml", MINE)
    write("data/mine/a.csv", "text,picture,part\n")
    passes("mine.yaml")


def test_a_copy_of_winoground_must_be_there_if_models_are_scored(root):
    own = "winoground: mine\nwinoground_sets: {mine: {source: folder, path: data/wino}}\n"
    write("mine.yaml", own)
    why = "data/wino: there is no Parquet file"
    assert error("mine.yaml") == f"mine.yaml: winoground_sets.mine.path: {why}"
    table = pa.table({"image_0": ["a"]})
    Path("data/wino").mkdir(parents=True)
    pq.write_table(table, "data/wino/test.parquet")
    assert "image_1, caption_0, caption_1 missing" in error("mine.yaml")
    passes("mine.yaml", assignments=["studies=[bridgetower-dataloading]"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no such folder"),
        (["model.bin"], "no *.safetensors file there (only model.bin, which is a pickle)"),
        (["model.safetensors"], "no config.json there"),
    ],
)
def test_a_checkpoint_folder_without_weights_is_an_error(root, files, message):
    for file in files:
        write(f"weights/{file}", "")
    edit(STUDY, "size: large}", "size: large, checkpoint: ./weights}")
    found = error()
    assert found.startswith(f"{STUDY}: model.checkpoint: ./weights: ")
    assert message in found
    (found,) = error(assignments=["checkpoint=./weights"]).splitlines()
    assert found.startswith("command line: checkpoint: ./weights: ")


@pytest.mark.parametrize("runs_here", [True, False])
def test_the_home_of_nobody_has_no_checkpoint(root, runs_here):
    found = error(assignments=["checkpoint=~nosuch/weights"], runs_here=runs_here)
    assert found == "command line: checkpoint: ~nosuch/weights: no such folder"


def software(text):
    edit("config/devices.yaml", "  count: 1\n", f"  count: 1\n  software: {{{text}}}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python: /opt/none/bin/python", "python: there is no program /opt/none/bin/python on "),
        ("python: envs/none/bin/python", "python: there is no program envs/none/bin/python on "),
        ("python: python2.0", "python: there is no program python2.0 on "),
        ("container: images/none.sif", "container: there is no image images/none.sif on "),
        ("container: ~images/none.sif", "container: there is no image ~images/none.sif on "),
        ("python: ~nosuch/bin/python", "python: there is no program ~nosuch/bin/python on "),
    ],
)
def test_a_missing_interpreter_or_image_is_an_error(root, text, message):
    software(text)
    assert error().startswith(f"config/devices.yaml: cpu.software.{message}")


@pytest.mark.parametrize(
    "text", ["python: python2.0, modules: [python]", "python: x/python, container: docker://x/y"]
)
def test_what_a_module_or_a_container_brings_is_known_to_the_job_alone(root, text):
    software(text)
    passes()


def test_on_other_hosts_an_absolute_path_may_exist_but_the_project_is_the_same(root):
    software("python: /opt/none/bin/python")
    write("mine.yaml", MINE.replace("data/mine", "/data/mine"))
    passes("mine.yaml", runs_here=False)
    assert "datasets.mine.path: there is no folder '/data/mine'" in error(
        "mine.yaml", assignments=["on_driver=[downloads]"], runs_here=False
    )
    edit("config/devices.yaml", "/opt/none", "envs/none")
    assert "there is no program envs/none/bin/python in the project's folder" in error(
        runs_here=False
    )


def test_a_device_whose_runs_are_done_may_have_run_elsewhere(root):
    software("python: /opt/none/bin/python")
    layers = read_layers([])
    check_files(configuration.load(Path(), layers), [], layers, runs_here=True)


def test_a_target_after_the_profile_is_no_choice(monkeypatch):
    """The words of a call that select and override are shown for another call: without targets."""
    monkeypatch.chdir(Path(__file__).resolve().parents[3])
    words = ["--profile", "profiles/local", "runs/a/outcome.json", "-n", "--config", "repeats=1"]
    monkeypatch.setattr(sys, "argv", ["snakemake", *words])
    configuration.call.cache_clear()
    call = configuration.call()
    configuration.call.cache_clear()
    assert call.choices == ["--profile", "profiles/local", "--config", "repeats=1"]
    assert set(call.targets) == {"runs/a/outcome.json"}
