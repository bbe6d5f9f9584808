"""The plan in numbers and in words, from what a dry-run said."""

from collections import Counter
from pathlib import Path

import pytest

from feedrate.cli.plan import duration, show
from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.flow import forecast as forecasts
from feedrate.flow.forecast import DryRun, Job

ROOT = Path(__file__).resolve().parents[3]
STUDY = "bridgetower-dataloading"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def project(**changes):
    chosen = {"studies": [STUDY], "devices": ["gaudi2", "h100"]}
    values = read_yaml(ROOT / "config/config.yaml") | chosen | changes
    return load_project(ROOT, values)


def training(spec, **resources):
    rule = f"{paths.TRAIN_RULE}{spec.device}"
    return Job(rule=rule, output=[outcome(spec)], threads=8, resources=resources)


def outcome(spec):
    return paths.OUTCOME.format(
        study=spec.study, device=spec.device, cell=spec.cell, repeat=spec.repeat
    )


RULES = ["fetch_dataset", "train_h100", "train_gaudi2", "parse_logs", "tabulate_cells"]
RULES += ["plot_answer", "plot_fit", "all"]


def dry_run(jobs, on_cluster=True, placed=("train_h100", "train_gaudi2")):
    return DryRun(
        config={},
        on_cluster=on_cluster,
        rules=RULES,
        local_rules=["parse_logs", "all"],
        set_resources=list(placed),
        jobs=list(jobs),
    )


@pytest.fixture
def known(monkeypatch):
    """Every run takes 36 s by its earlier runs; on gaudi2, repeat 3 is not known."""

    class Known:
        def __init__(self, project):
            pass

        def of(self, spec):
            if (spec.device, spec.repeat) == ("gaudi2", 3):
                return None
            return 36.0, "cell"

    monkeypatch.setattr(forecasts, "Estimator", Known)


def made(jobs_of, **changes):
    config = project(**changes)
    plan = make_plan(config)
    return forecasts.forecast(config, plan, dry_run(jobs_of(list(plan.runs.values()))))


def test_runs_are_counted_by_study_and_device(known, folder):
    config = project()
    plan = make_plan(config)
    runs = [spec for spec in plan.runs.values() if spec.device == "h100"]
    for spec in runs[:2]:
        path = folder / outcome(spec)
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    found = forecasts.forecast(config, plan, dry_run(map(training, runs[1:])))
    gaudi2, h100 = found.runs
    assert (h100.study, h100.device, h100.devices_per_job) == (STUDY, "h100", 8)
    assert (h100.cells, h100.unsupported_cells) == (9, 7)
    assert (h100.done, h100.to_do) == (1, 26), "an outcome that is made again is not done"
    assert (gaudi2.cells, gaudi2.unsupported_cells, gaudi2.done, gaudi2.to_do) == (14, 0, 0, 0)


def test_hours_are_those_of_all_devices_and_unknown_ones_are_left_out(known):
    gaudi2, h100 = made(lambda runs: map(training, runs)).runs
    assert h100.job_s == 27 * 36
    assert h100.device_hours == pytest.approx(27 * 36 * 8 / 3600)
    assert (gaudi2.job_s, gaudi2.unknown) == (28 * 36, 14)


def test_devices_run_side_by_side_on_a_cluster_and_in_turn_on_one_machine(known):
    config = project()
    plan = make_plan(config)
    jobs = [training(spec) for spec in plan.runs.values()]
    cluster = forecasts.forecast(config, plan, dry_run(jobs))
    here = forecasts.forecast(config, plan, dry_run(jobs, on_cluster=False))
    assert cluster.wall_s == 28 * 36
    assert here.wall_s == (28 + 27) * 36
    assert {row.place for row in here.jobs} == {"here"}


def test_cost_is_the_price_of_the_jobs_devices_by_the_hour(known):
    (group,) = made(lambda runs: map(training, runs), devices=["h100"]).runs
    assert group.cost_usd is None
    group.price_usd_per_hour = 20.0
    assert group.cost_usd == pytest.approx(27 * 36 / 3600 * 20)


def test_jobs_alike_are_one_row_with_their_place(known):
    def jobs(runs):
        yield from (training(r, slurm_partition="h100", gres="gpu:8", runtime=60) for r in runs[:3])
        yield training(runs[3], slurm_partition="h100", gres="gpu:8", runtime=120)
        yield training(runs[4])
        for rule in ("parse_logs", "plot_answer", "plot_fit", "tabulate_cells"):
            yield Job(rule=rule, output=[rule], threads=1, resources={})

    rows = {(row.rule, row.place, row.count) for row in made(jobs, devices=["h100"]).jobs}
    assert rows == {
        ("train_h100", "h100", 3),
        ("train_h100", "h100", 1),
        ("train_h100", "default partition", 1),
        ("parse_logs", "here", 1),
        ("plot_*", "default partition", 2),
        ("tabulate_*", "default partition", 1),
    }


def test_it_is_told_in_words(known, capsys):
    def jobs(runs):
        return [
            training(spec, slurm_partition="g", gres="gaudi:8", mem_mb=900_000, runtime=260)
            for spec in runs
        ]

    show(made(jobs))
    text = capsys.readouterr().out
    assert "2.2 + 14 unknown" in text
    assert "earlier runs" in text
    assert "879 GiB" in text
    assert "4 h 20 min" in text
    assert "gres=gaudi:8" in text
    assert "Training: 4.4 device-hours, about 17 min with one job at a time on each device" in text
    assert "and 14 runs of unknown length" in text
    assert "earlier runs (28), nothing (14)" in text
    assert "Estimated from nothing: " in text
    assert "Jobs: 48 to g." not in text
    assert "Jobs: 69 to g." in text
    assert "Cost: not known; set prices with `price_usd_per_hour` in config/devices.yaml." in text
    assert "USD" not in text


def test_what_is_not_known_is_called_so(known, capsys):
    show(made(lambda runs: [training(r) for r in runs if r.repeat == 3], devices=["gaudi2"]))
    text = capsys.readouterr().out
    assert "unknown" in text
    assert "The duration is not known" in text
    assert "device-hours, about" not in text


def test_a_cost_is_told_with_what_has_no_price(known, capsys):
    found = made(lambda runs: map(training, runs))
    found.runs[1].price_usd_per_hour = 20.0
    show(found)
    text = capsys.readouterr().out
    assert "5.40 USD" in text
    assert "without gaudi2." in text
    assert "no price" in text


def test_what_the_profile_says_nothing_of_is_told(known, capsys):
    config = project()
    plan = make_plan(config)
    jobs = [training(spec, slurm_partition="cpu") for spec in plan.runs.values()]
    found = forecasts.forecast(config, plan, dry_run(jobs, placed=["train_h100"]))
    assert [row.rule for row in found.unplaced] == ["train_gaudi2"]
    show(found)
    text = capsys.readouterr().out
    assert "train_gaudi2 is not among the profile's set-resources: its jobs go to cpu" in text
    assert (
        forecasts.forecast(config, plan, dry_run(jobs, on_cluster=False, placed=[])).unplaced == []
    )


def test_what_nobody_asks_for_has_no_column(known, capsys):
    config = project(devices=["h100"])
    plan = make_plan(config)
    jobs = [training(spec) for spec in plan.runs.values()]
    show(forecasts.forecast(config, plan, dry_run(jobs, on_cluster=False)))
    text = capsys.readouterr().out
    assert "memory" not in text
    assert "requests" not in text
    assert "Jobs:" not in text
    assert "time limit" not in text


def test_rows_stand_in_the_order_of_the_snakefile(known):
    def jobs(runs):
        for rule in ("plot_fit", "parse_logs", "tabulate_cells", "fetch_dataset", "plot_answer"):
            yield Job(rule=rule, output=[rule], threads=1, resources={})
        yield training(runs[0])

    rules = [row.rule for row in made(jobs, devices=["h100"]).jobs]
    assert rules == ["fetch_dataset", "train_h100", "parse_logs", "tabulate_*", "plot_*"]


def test_each_basis_is_explained(known, capsys):
    found = made(lambda runs: map(training, runs), devices=["h100"])
    found.runs[0].bases = Counter(published=3, lowest=3, scaled=3, study=3)
    show(found)
    text = capsys.readouterr().out
    assert "similar runs (3), published rates (3), lowest rate (3), scaled rates (3)" in text
    for word in ("similar runs", "lowest rate", "scaled rates"):
        assert f"Estimated from {word}: " in text
    assert "2 min for a job's start" in text


def test_nothing_to_do_is_told(known, capsys):
    show(made(lambda runs: []))
    assert "Nothing to do." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (99, "99 s"), (120, "2 min"), (7200, "2 h"), (12_000, "3 h 20 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
