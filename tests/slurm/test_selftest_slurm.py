"""`feedrate selftest` on a cluster: one job on a node with the device, and its page at the end."""

import json
import shutil

import pytest
from mini_project import Project, know_code
from test_end_to_end_slurm import CPU, ONE, logs

from selftest_parts import QUICK, some_parts


@pytest.fixture
def project(cluster, prepared, tmp_path):
    """A project whose data are prepared; its remaining jobs are cancelled at the end."""
    root = shutil.copytree(prepared.root, tmp_path / "project", symlinks=True)
    yield know_code(Project(root))
    cluster.cancel(root)


def test_it_is_one_job_of_slurm(cluster, project):
    project.device("a100-80gb", **ONE, **CPU, job={"gres": "gpu:4"})
    some_parts(project.root / "config", "baseline", "compiled", **QUICK)
    done = project.call(
        "feedrate", "selftest", "--profile", "profiles/gaudi", "--device", "a100-80gb"
    )
    assert done.returncode == 0, done.stdout + logs(project)
    (job,) = cluster.jobs(project.root)
    assert (job["Rule"], job["JobState"]) == ("selftest_a100_80gb", "COMPLETED")
    assert (job["Partition"], job["TresPerNode"]) == ("a100", "gres:gpu:4")
    assert (int(job["NumCPUs"]), job["OverSubscribe"]) == (128, "NO")
    out = project.root / "results/selftest/a100-80gb/selftest.json"
    lines = {line["subject"]: line["outcome"] for line in json.loads(out.read_text())["lines"]}
    assert lines["one card: baseline"] == "passed"
    assert lines["compiled"] == "not claimed"
    assert "Self-test of a100-80gb on " in done.stdout
