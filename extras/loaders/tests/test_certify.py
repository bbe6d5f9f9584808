"""`certify`: which pace it takes, what it refuses, and what it writes."""

import json
from pathlib import Path

import msgspec
import pytest
from record_builder import make_record

from feed_builder import CACHE, HOST, answer
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.core.errors import UsageError
from feedrate.jobs.events import EventLog, Start, Step
from feedrate.results.record import write_records
from feedrate_loaders import __main__ as entry
from feedrate_loaders import certify
from feedrate_loaders.feed import PATHS, Level, Request

ROOT = Path(__file__).resolve().parents[3]
CALL = ["certify", "--device", "h100", "--model", "bridgetower-large"]


@pytest.fixture(scope="module")
def project():
    values = read_yaml(ROOT / "config/config.yaml") | {"devices": ["h100"]}
    return certify.with_all_studies(ROOT, load_project(ROOT, values))


def test_the_fastest_headline_row_is_the_pace(project):
    pace, settings = certify.choose(project, "h100", "bridgetower-large", None)
    assert pace.source.startswith("2023-08-h100-w2: 602.1 samples/s on 8")
    assert pace.samples_per_s == pytest.approx(602.1 / 8)
    assert (pace.batch_size, settings.train.batch_size, pace.accelerators) == (48, 48, 8)
    assert pace.step_s == [pytest.approx(48 * 8 / 602.1)]


def test_a_row_can_be_named(project):
    pace, _ = certify.choose(project, "h100", "bridgetower-large", "2023-08-h100-w0")
    assert pace.samples_per_s == pytest.approx(336.5 / 8)
    with pytest.raises(UsageError, match="--pace row: not among: 2023-08-h100-w0, "):
        certify.choose(project, "h100", "bridgetower-large", "row")


@pytest.mark.parametrize(("device", "models"), [("h100", "bridgetower-large"), ("t4", "none")])
def test_a_model_without_a_rate_is_refused_with_those_that_have_one(project, device, models):
    with pytest.raises(UsageError, match=f"--model x: .* on {device}; .*: .*{models}"):
        certify.choose(project, device, "x", None)


def test_own_runs_come_first_with_their_recorded_steps(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = make_record()
    folder = Path(record.folder)
    folder.mkdir(parents=True)
    write_records(Path(paths.STUDY.format(study="loading")), "cpu", [record])
    log = EventLog(folder, 0)
    log.write(Start(rank=0, world_size=1))
    for step, wait_s in enumerate((0.0, 0.1, 0.2)):
        timed = {"step": step + 1, "step_s": 1.0, "data_wait_s": wait_s}
        log.write(Step(rank=0, **timed, warmup=step == 0))
    model = record.spec.settings.model.label
    pace, settings = certify.choose(project, "cpu", model, None)
    assert pace.step_s == [pytest.approx(0.9), pytest.approx(0.8)]
    assert settings == record.spec.settings
    assert pace.source.startswith(f"{folder}: 2 recorded steps")


@pytest.fixture
def stood_in(monkeypatch):
    """The measurement costs nothing; the jobs that were asked for."""
    asked = []

    def run_ranks(spec, job, folder, options, what, limit_s, package):
        asked.append((spec, f"{package} {job}", options))
        folder.mkdir(parents=True)
        (folder / "fed.json").write_bytes(msgspec.json.encode(answer(HOST, CACHE)))

    monkeypatch.setattr(certify, "run_ranks", run_ranks)
    return asked


def test_a_certificate_is_measured_on_the_host_alone(project, stood_in, tmp_path):
    pace, settings = certify.choose(project, "h100", "bridgetower-large", None)
    (tmp_path / "manifest.json").write_text("{}")
    spec = certify.feed_spec(project, pace, settings)
    made = certify.measure(pace, spec, PATHS, tmp_path / "manifest.json", tmp_path / "runs")
    ((asked, job, options),) = stood_in
    assert (asked.kind, asked.count, job) == ("cpu", 1, "feedrate_loaders worker")
    request = msgspec.json.decode(options[-1], type=Request)
    assert request.step_s == pace.step_s
    assert "cache" in {level.decode for level in request.levels}, "refused, but not left out"
    assert made.emulated
    assert [one.fed for one in made.levels] == [3, 0]


def test_the_command_writes_file_and_page(stood_in, tmp_path, monkeypatch, capsys):
    for name in ("config", "profiles", "report"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "Snakefile").write_text("")
    monkeypatch.chdir(tmp_path)
    asked = []

    def run_snakemake(_, target, **__):
        asked.append(target)
        manifest = Path(target)
        manifest.parent.mkdir(parents=True)
        manifest.write_text("{}")
        return 0

    monkeypatch.setattr(certify.snakemake, "run_snakemake", run_snakemake)
    assert entry.main([*CALL, "--library", "spdl"]) == 0
    ((_, _, options),) = stood_in
    levels = msgspec.json.decode(options[-1], type=Request).levels
    assert [level.name for level in levels if level.library] == ["spdl host", "spdl best"]
    assert asked[0].startswith("resources/datasets/generated/prepared-")
    file = tmp_path / "results/certificates/h100/bridgetower-large/certificate.json"
    assert json.loads(file.read_text())["emulated"] is True
    page = file.with_suffix(".txt").read_text()
    assert "This host feeds" in page
    assert page in capsys.readouterr().out


def test_a_library_that_does_not_exist_is_refused_before_anything_starts(capsys, monkeypatch):
    monkeypatch.setattr(certify.snakemake, "run_snakemake", None)
    monkeypatch.chdir(ROOT)
    assert entry.main([*CALL, "--library", "spdll"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("feedrate: --library: 'spdll' is not allowed; did you mean spdl? ")


def test_without_a_name_all_installed_libraries_are_certified(monkeypatch):
    monkeypatch.setattr(
        certify, "missing_packages", lambda name, _: "" if name == "grain" else "no"
    )
    assert certify.library_levels(None) == [Level("host", library="grain")]


@pytest.mark.parametrize(
    "call", [CALL[:3], ["certify", *CALL[3:]], [*CALL, "--device", "a100-80gb"]]
)
def test_one_device_and_one_model_must_be_named(call, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert entry.main(call) == 2
    assert "name one --device and one --model" in capsys.readouterr().err
