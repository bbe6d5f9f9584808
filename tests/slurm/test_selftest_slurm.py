"""`feedrate selftest` on a cluster: one job on a node with the device, and its page at the end."""

import json

import yaml
from mini_project import DATA
from test_end_to_end_slurm import CPU, ONE, logs

from selftest_parts import QUICK, some_parts


def test_it_is_one_job_of_slurm(cluster, project):
    project.device("a100-80gb", **ONE, **CPU, job={"gres": "gpu:4"})
    config = yaml.safe_load((project.root / "config/config.yaml").read_text())
    project.config(datasets=config["datasets"] | {"generated": DATA})
    some_parts(project.root / "config", "baseline", "compiled", **QUICK)
    done = project.call(
        "feedrate", "selftest", "--profile", "profiles/gaudi", "--device", "a100-80gb"
    )
    assert done.returncode == 0, done.stdout + logs(project)
    rules = {job["Rule"]: job["JobState"] for job in cluster.jobs(project.root)}
    assert rules["selftest_a100_80gb"] == "COMPLETED"
    assert not [rule for rule in rules if rule.startswith("train")]
    out = project.root / "results/selftest/a100-80gb/selftest.json"
    lines = {line["subject"]: line["outcome"] for line in json.loads(out.read_text())["lines"]}
    assert lines["one card: baseline"] == "passed"
    assert lines["compiled"] == "not claimed"
    assert "Self-test of a100-80gb on " in done.stdout
