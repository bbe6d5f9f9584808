"""How long a run will take: by earlier runs, by published rates, or not known."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.flow.estimate import START_S, Estimator

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def project():
    values = read_yaml(ROOT / "config/config.yaml") | {"devices": ["cpu", "gaudi2", "gaudi3"]}
    return load_project(ROOT, values)


@pytest.fixture(scope="module")
def runs(project):
    return list(make_plan(project).runs.values())


def pick(runs, device, **levels):
    return next(r for r in runs if r.device == device and levels.items() <= r.levels.items())


def leave_record(spec, window_s, duration_s, status="ok", **protocol):
    """One more record of the last report, in as far as it is read here."""
    spec = msgspec.to_builtins(spec)
    spec["protocol"] |= protocol
    record = {
        "status": status,
        "spec": spec,
        "measurement": {"wall_s": window_s, "samples_per_s": 1.0},
        "provenance": {"duration_s": duration_s, "host": "n1"},
    }
    path = Path(paths.RECORDS.format(study=spec["study"], device=spec["device"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    return path


def test_nothing_is_known_of_a_device_without_runs_and_without_rates(project, runs):
    assert Estimator(project).of(pick(runs, "cpu")) is None


def test_earlier_runs_of_the_same_cell_count_first(project, runs):
    one, other = (pick(runs, "cpu", workers=w) for w in (0, 2))
    for duration_s in (30.0, 34.0, 90.0):
        leave_record(one, 10.0, duration_s)
    leave_record(other, 10.0, 400.0)
    estimator = Estimator(project)
    assert estimator.of(one) == (pytest.approx(34.0), "earlier runs")
    assert estimator.of(other) == (pytest.approx(400.0), "earlier runs")
    third = estimator.of(pick(runs, "cpu", workers=16))
    assert third == (pytest.approx(62.0), "earlier runs"), "the median of the device's"


def test_a_run_of_more_steps_takes_longer_in_its_window_alone(project, runs):
    spec = pick(runs, "cpu")
    window = spec.protocol.steps - spec.protocol.warmup_steps
    half = spec.protocol.warmup_steps + window // 2
    leave_record(spec, 10.0, 25.0, steps=half)
    assert Estimator(project).of(spec)[0] == pytest.approx(15.0 + 20.0)


@pytest.mark.parametrize("status", ["failed", "invalid", "out_of_memory"])
def test_runs_that_did_not_end_well_tell_nothing(project, runs, status):
    leave_record(pick(runs, "cpu"), 10.0, 25.0, status=status)
    assert Estimator(project).of(pick(runs, "cpu")) is None


def test_a_record_that_cannot_be_read_is_passed_over(project, runs):
    spec = pick(runs, "cpu")
    path = leave_record(spec, 10.0, 25.0)
    whole = path.read_text()
    path.write_text(whole[:100] + '\n{"status": "ok", "spec": null}\n[]\n')
    assert Estimator(project).of(spec) is None
    path.write_text(whole[:100] + "\n" + whole)
    assert Estimator(project).of(spec) == (pytest.approx(25.0), "earlier runs")


def by_rate(spec, samples_per_s):
    """Seconds of a job that trains all its samples at a rate."""
    samples = spec.protocol.steps * spec.settings.train.batch_size * spec.count
    return pytest.approx(START_S + samples / samples_per_s + 3 * spec.protocol.ceiling_s)


@pytest.mark.parametrize(
    ("device", "count", "workers", "samples_per_s"),
    [
        ("gaudi2", 8, 2, 768.7),
        ("gaudi2", 8, 16, None),  # nobody has published this cell
        ("gaudi2", 1, 2, 58.05),  # used instead of a rate of eight devices
        ("h100", 2, 2, 602.1 / 4),  # from eight
    ],
)
def test_published_rates_where_nothing_was_run(
    project, runs, device, count, workers, samples_per_s
):
    """Also on a server with fewer devices than the source had."""
    own = f"{device}-x{count}"
    entry = replace(project.devices[device], count=count, variant_of=device)
    project = replace(project, devices=project.devices | {own: entry})
    spec = pick(runs, "gaudi2", workers=workers, decode="reference", strategy="ddp")
    spec = replace(spec, device=own, count=count)
    if samples_per_s is None:
        published = project.published["bridgetower-dataloading"]
        rates = [row for row in published if row.metric == "samples_per_s"]
        samples_per_s = min(r.value for r in rates if (r.device, r.count) == (device, count))
    assert Estimator(project).of(spec) == (by_rate(spec, samples_per_s), "published rates")
