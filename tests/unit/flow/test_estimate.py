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
from feedrate.flow.estimate import (
    EARLIER,
    PUBLISHED,
    START_S,
    Estimate,
    Estimator,
    outlook,
    range_text,
)
from feedrate.flow.folders import run_folder

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


def leave_run(spec, duration_s, status="ok", repeat=1, **protocol):
    """A run that has ended, as far as it is read here."""
    folder = Path(run_folder(replace(spec, repeat=repeat), "0a1b2c3d"))
    folder.mkdir(parents=True)
    written = msgspec.to_builtins(spec)
    written["protocol"] |= protocol
    (folder / paths.SPEC_NAME).write_text(json.dumps(written))
    outcome = {"status": status, "duration_s": duration_s, "cause": ""}
    (folder / paths.OUTCOME_NAME).write_text(json.dumps(outcome))
    return folder


def likely(project, *specs):
    """The shortest and the longest likely time, and what they are from."""
    estimate = Estimator(project).of(specs)
    return estimate.low_s, estimate.high_s, *estimate.bases


def test_earlier_runs_of_the_cell_count_first_then_those_of_the_study(project, runs):
    first, second, third = (pick(runs, "cpu", workers=w) for w in (0, 2, 16))
    for repeat, duration_s in enumerate((30.0, 34.0, 90.0), start=1):
        leave_run(first, duration_s, repeat=repeat)
    leave_run(second, 20.0)
    assert likely(project, first) == (30.0, 90.0, EARLIER)
    assert likely(project, second) == (20.0, 20.0, EARLIER)
    assert likely(project, third) == (20.0, 90.0, EARLIER)
    assert likely(project, first, second) == (50.0, 110.0, EARLIER)


def test_runs_of_other_studies_on_the_device_are_better_than_nothing(project, runs):
    spec = pick(runs, "cpu")
    leave_run(replace(spec, study="another"), 40.0)
    assert likely(project, spec) == (40.0, 40.0, EARLIER)


def test_more_steps_take_up_to_so_many_times_as_long(project, runs):
    spec = pick(runs, "cpu")
    window = spec.protocol.steps - spec.protocol.warmup_steps
    leave_run(spec, 25.0, steps=spec.protocol.warmup_steps + window // 2)
    assert likely(project, spec) == (25.0, 50.0, EARLIER)
    leave_run(spec, 30.0, repeat=2, steps=spec.protocol.warmup_steps + 2 * window)
    assert likely(project, spec) == (15.0, 50.0, EARLIER)


@pytest.mark.parametrize("status", ["failed", "out_of_memory"])
def test_without_a_good_run_and_without_rates_only_the_limit_is_known(project, runs, status):
    spec = pick(runs, "cpu")
    leave_run(spec, 25.0, status=status)
    folder = leave_run(spec, 25.0, repeat=2)
    (folder / paths.SPEC_NAME).write_text('{"settings": {"of": "another version"}}')
    estimate = Estimator(project).of([spec])
    assert estimate[:2] == (0.0, 0.0)
    assert estimate[2:] == (240 * 60, frozenset(), 1, 1)


@pytest.mark.parametrize(
    ("device", "count", "workers", "low", "high"),
    [
        ("gaudi2", 8, 2, 768.7, 768.7),
        ("gaudi2", 8, 16, None, None),  # nobody has published this cell
        ("gaudi2", 1, 2, 58.05, 58.05),  # used instead of a rate of eight devices
        ("h100", 2, 2, 602.1 / 4, 602.1 / 4),  # from eight
    ],
)
def test_published_rates_where_nothing_was_run(project, runs, device, count, workers, low, high):
    """Also on a server with fewer devices than the source had."""
    own = f"{device}-x{count}"
    entry = replace(project.devices[device], count=count, variant_of=device)
    config = replace(project.config, devices=[own])
    project = replace(project, config=config, devices=project.devices | {own: entry})
    spec = pick(runs, "gaudi2", workers=workers, decode="reference", strategy="ddp")
    spec = replace(spec, device=own, count=count)
    if low is None:
        published = project.published["bridgetower-dataloading"]
        rates = [row for row in published if row.metric == "samples_per_s"]
        rates = [r.value for r in rates if (r.device, r.count) == (device, count)]
        low, high = min(rates), max(rates)
    samples = spec.protocol.steps * spec.settings.train.batch_size * spec.count
    rounds_s = 3 * spec.protocol.ceiling_s
    short_s, long_s, basis = likely(project, spec)
    assert short_s == pytest.approx(samples / high + rounds_s)
    assert long_s == pytest.approx(START_S + samples / low + rounds_s)
    assert basis == PUBLISHED


HOUR_S = 3600.0
LOCAL = Estimate(600.0, 1800.0, 8 * HOUR_S, frozenset([EARLIER]), runs=28)


@pytest.mark.parametrize(
    ("estimates", "on_cluster", "text"),
    [
        (
            [LOCAL],
            False,
            "28 runs, 10 to 30 min (like your earlier runs); at most 8 h by their time limits.",
        ),
        (
            [LOCAL, Estimate(60.0, 60.0, HOUR_S, frozenset([PUBLISHED]), runs=4, unknown=2)],
            False,
            "32 runs, 11 to 31 min for 30 of them (like your earlier runs, by published rates); "
            "at most 9 h by their time limits.",
        ),
        (
            [LOCAL, Estimate(60.0, 60.0, 9 * HOUR_S, frozenset([EARLIER]), runs=4)],
            True,
            "32 runs, 10 to 30 min (like your earlier runs); at most 9 h by their time limits, "
            "with one job at a time on each device.",
        ),
        (
            [Estimate(limit_s=240 * 60, runs=1, unknown=1)],
            False,
            "1 run; at most 4 h by their time limits.",
        ),
        ([Estimate()], False, "There are no runs to do."),
    ],
)
def test_the_outlook_is_a_range_with_an_upper_bound(estimates, on_cluster, text):
    assert outlook(estimates, on_cluster=on_cluster) == text


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [(0.0, 0.4, "0 s"), (40.0, 90.0, "40 to 90 s"), (20.0, 150.0, "0 to 2 min")],
)
def test_a_range_has_one_unit(low_s, high_s, text):
    assert range_text(low_s, high_s) == text
