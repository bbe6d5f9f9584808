"""A limit on a rank's memory: running out of it is real, caught, and known for what it is."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from training_jobs import make_spec, of_a_script

from feedrate.jobs.job_setup import limit_memory

TAKE = """
import json, sys
import torch
from training_jobs import make_spec
import msgspec
from feedrate.jobs.worker import classify
from feedrate.jobs.job_setup import limit_memory

spec = make_spec()
train = msgspec.structs.replace(spec.settings.train, memory_gib=float(sys.argv[1]))
settings = msgspec.structs.replace(spec.settings, train=train)
limit_memory(msgspec.structs.replace(spec, settings=settings))
try:
    torch.empty(int(float(sys.argv[2]) * 2**30), dtype=torch.uint8)
    print(json.dumps({"fits": True}))
except RuntimeError as error:
    print(json.dumps({"fits": False, "known": classify(error).out_of_memory}))
"""


def take(limit_gib, wanted_gib):
    done = subprocess.run(
        [sys.executable, "-c", TAKE, str(limit_gib), str(wanted_gib)],
        cwd=Path(__file__).parent,
        env=of_a_script(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("limit_gib", "wanted_gib", "ended"),
    [(0.5, 0.25, {"fits": True}), (0.5, 0.75, {"fits": False, "known": True})],
)
def test_the_limit_is_what_the_job_may_take_beyond_its_programs(limit_gib, wanted_gib, ended):
    assert take(limit_gib, wanted_gib) == ended


def test_without_a_limit_nothing_changes():
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit_memory(make_spec())
    assert resource.getrlimit(resource.RLIMIT_AS) == before
