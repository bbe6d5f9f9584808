"""`python -m feedrate plan`, on real dry-runs: what is shown is what Snakemake would run."""

import os
import re

import msgspec
import pytest
from mini_project import MINI

from feed_builder import HOST, PACE, certificate
from feedrate.core import paths
from feedrate.core.files import write_json

RUNS = "Runs of mini"


def rows(text, title):
    """The rows of a table, split at its columns' gaps, by first word."""
    body = text.partition(f"{title}  ")[2].partition("\n\n")[0].splitlines()[2:]
    return {line.split()[0]: line.split() for line in body}


def plan(project, *arguments):
    done = project.call("feedrate", "plan", *arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_fresh_project(project):
    text = plan(project)
    assert rows(text, RUNS)["cpu"] == ["cpu", "2", "2", "0", "2", "unknown", "nothing"]
    jobs = rows(text, "Jobs")
    planned = project.planned()
    assert {rule: row[:3] for rule, row in jobs.items() if "*" not in rule} == {
        rule: [rule, "here", str(count)]
        for rule, count in planned.items()
        if not rule.startswith(("plot_", "tabulate_")) and rule != "all"
    }
    assert "not known" in text
    assert not (project.root / "results").exists()
    assert not (project.root / ".snakemake/locks").is_dir() or not list(
        (project.root / ".snakemake/locks").iterdir()
    )


def test_what_is_done_is_not_planned_and_tells_how_long_the_rest_takes(edited):
    assert "Nothing to do." in plan(edited)
    levels = {"sets": "loader.workers", "levels": [0, 1, 2]}
    edited.study(factors=MINI["factors"] | {"workers": levels})
    text = plan(edited)
    assert rows(text, RUNS)["cpu"][:5] == ["cpu", "3", "3", "2", "1"]
    assert "similar runs" in text
    found = re.search(r"Training: [\d.]+ device-hours, about (\d+) s with one job at a time", text)
    assert found
    assert 1 < int(found[1]) < 99


@pytest.mark.parametrize(("cores", "warned"), [(2, False), (2000, True)])
def test_cells_that_cannot_be_fed_are_warned_of(project, cores, warned):
    """A host with so many cores feeds 3.4 accelerators; the job here has those of this machine."""
    pace = msgspec.structs.replace(PACE, device="cpu", label="CPU", model="bridgetower-tiny")
    file = project.root / paths.CERTIFICATE.format(device=pace.device, model=pace.model)
    write_json(file, msgspec.to_builtins(certificate(HOST, pace=pace, cores=cores)))
    text = " ".join(plan(project).split())
    assert ("cannot be fed" in text) is warned
    if warned:
        assert "1 cell of mini on cpu with `host` cannot be fed" in text
        assert "1 accelerator needs 585 cores to be busy 90% of the time" in text
        assert "it read `tiny`, these cells read `small`" in text
        assert "with `workers: 1` the job uses 1 (" in text or os.cpu_count() == 1


def test_on_a_cluster_each_rule_has_its_place_and_what_it_asks_for(project):
    project.device("gaudi2", price_usd_per_hour=10)
    text = plan(project, "--profile", "gaudi", "--device", "gaudi2")
    row = rows(text, RUNS)["gaudi2"]
    # Decoding on the device ignores the workers: two of the four cells share a run.
    assert row == ["gaudi2", "3", "0", "0", "3", "unknown", "unknown", "nothing"]
    jobs = rows(text, "Jobs")
    assert jobs["train_gaudi2"][:3] == ["train_gaudi2", "gaudi2", "3"]
    assert "gres=gpu:8" in text
    assert jobs["parse_logs"][1] == "here"


def test_it_is_a_target_too_with_the_same_profile(project):
    typed = ("--profile", "gaudi", "plan", "--config", "devices=[gaudi2]")
    done = project.call("snakemake", *typed)
    assert done.returncode == 0, done.stdout
    direct = plan(project, "--profile", "gaudi", "--device", "gaudi2")
    assert direct.strip() in done.stdout


def test_only_what_is_asked_for_is_planned(project):
    jobs = rows(plan(project, "resources/datasets/small/raw/index.json"), "Jobs")
    assert set(jobs) == {"fetch_dataset"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--device", "hundred"),
        ("--profile", "nowhere"),
        ("--configfile", "nowhere.yaml"),
        ("--frobnicate", "--frobnicate"),
    ],
)
def test_what_is_wrong_is_told_without_a_plan(project, arguments):
    done = project.call("feedrate", "plan", *arguments)
    assert done.returncode != 0
    assert arguments[1] in done.stdout
    assert len(done.stdout.splitlines()) == 1, done.stdout
    assert "Runs" not in done.stdout


TOOLS = {
    "gpu-node": (
        "nvidia-smi",
        "NVIDIA H100 80GB HBM3, GPU-6e0d2c1a-8b0f-4c39, 00000000:1B:00.0, Disabled",
    ),
    "gaudi-node": ("hl-smi", "HL-225"),
}
"""What the drivers' tools say of a card, a line each."""


@pytest.mark.parametrize(
    ("profile", "cards", "device"),
    [("gpu-node", 1, "h100-x1"), ("gpu-node", 8, "h100"), ("gaudi-node", 8, "gaudi2")],
)
def test_what_a_server_has_is_planned_for_one_job_at_a_time(project, profile, cards, device):
    name, line = TOOLS[profile]
    tool = project.root / "home" / name
    tool.write_text("\n".join(["#!/bin/sh", *[f"echo '{line}'"] * cards]) + "\n")
    tool.chmod(0o755)
    environment = project.env
    project.env = lambda: environment() | {"PATH": f"{tool.parent}:{environment()['PATH']}"}
    text = plan(project, "--profile", profile)
    (row,) = rows(text, RUNS).values()
    assert row[0] == device
    job = rows(text, "Jobs")[f"train_{device.replace('-', '_')}"]
    assert job[1] == "here"
    assert int(job[3]) == os.cpu_count(), "all cores: no other job runs beside it"


@pytest.mark.parametrize("arguments", [("--device", "detected"), ("--profile", "gpu-node")])
def test_where_nothing_is_detected_it_is_one_sentence(project, arguments):
    done = project.call("feedrate", "plan", *arguments)
    assert done.returncode != 0
    assert "'detected' is not possible here" in done.stdout
    assert "name entries of config/devices.yaml: cpu, gaudi2" in done.stdout
    assert len(done.stdout.splitlines()) == 1, done.stdout
