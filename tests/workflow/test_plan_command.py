"""`python -m feedrate plan`: its runs are those that Snakemake would make."""

import re

from mini_project import MINI

RUNS = "Runs of mini"


def rows(text, title):
    """The rows of a table, split at its columns' gaps, by first word."""
    body = text.partition(f"{title}  ")[2].partition("\n\n")[0].splitlines()[2:]
    return {line.split()[0]: line.split() for line in body}


def plan(project, *arguments):
    done = project.call("feedrate", "plan", *arguments)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_what_is_done_is_not_planned_and_tells_how_long_the_rest_takes(edited):
    assert "There are no runs to do." in plan(edited)
    levels = {"sets": "loader.workers", "levels": [0, 1, 2]}
    edited.study(factors=MINI["factors"] | {"workers": levels})
    text = plan(edited)
    assert rows(text, RUNS)["cpu"][:5] == ["cpu", "3", "3", "2", "1"]
    assert edited.planned()["train_cpu"] == 1
    last = text.splitlines()[-1]
    found = re.fullmatch(
        r"1 run, (\d+)(?: to \d+)? s \(like your earlier runs\); at most 4 h by their time limits.",
        last,
    )
    assert found
    assert 0 < int(found[1]) < 99


CARD = "NVIDIA H100 80GB HBM3, GPU-6e0d2c1a-8b0f-4c39, 00000000:1B:00.0, Disabled"
"""What the driver's tool says of a card."""


def test_a_plan_is_for_what_a_server_has(project):
    """Servers with eight cards are in test_profiles.py."""
    tool = project.root / "home/nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{CARD}'\n")
    tool.chmod(0o755)
    environment = project.env
    project.env = lambda: environment() | {"PATH": f"{tool.parent}:{environment()['PATH']}"}
    (row,) = rows(plan(project, "--profile", "gpu-node"), RUNS).values()
    assert row[0] == "h100-x1"
    assert not (project.root / "results").exists()
    assert not (project.root / "runs").exists()
