"""A limit on a rank's memory: running out of it is real, caught, and known for what it is."""

import json
import subprocess
import sys
from pathlib import Path

from training_jobs import of_a_script

LIMIT = """
import gc, json, sys
gc.disable()
import torch
from training_jobs import make_spec
from feedrate.jobs.worker import classify
from feedrate.jobs.job_setup import limit_memory

limit_memory(make_spec(train={"memory_gib": float(sys.argv[1])}))
"""
TAKE = f"""{LIMIT}
ends = []
for wanted_gib in map(float, sys.argv[2:]):
    try:
        torch.empty(int(wanted_gib * 2**30), dtype=torch.uint8)
        ends.append({{"fits": True}})
    except RuntimeError as error:
        ends.append({{"fits": False, "known": classify(error).out_of_memory}})
print(json.dumps(ends))
gc.freeze()  # or the end takes as long as the imports
"""
CONVOLVE = f"""
import torch

def convolve(n):
    torch.nn.functional.conv2d(torch.rand(2, 5 + n, 40, 40), torch.rand(7 + n, 5 + n, 3, 3))

convolve(0)
{LIMIT}
known = {{}}
for n in range(1, 12):
    try:
        convolve(n)
    except RuntimeError as error:
        known[str(error)] = classify(error).out_of_memory
print(json.dumps(known))
gc.freeze()
"""
"""Convolutions of different sizes: oneDNN makes code for each. The stack grows in the first one:
where it cannot grow, the process crashes."""


def of_script(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=Path(__file__).parent,
        env=of_a_script(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_limit_is_what_the_job_may_take_beyond_its_programs():
    assert of_script(TAKE, 0.5, 0.25, 0.75) == [{"fits": True}, {"fits": False, "known": True}]


def test_code_for_which_there_is_no_memory_is_known_too():
    known = of_script(CONVOLVE, 2**-10)
    assert known
    assert all(known.values()), known
