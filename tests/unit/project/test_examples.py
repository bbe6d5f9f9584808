"""The scripts in examples/ work on the golden results."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/results"
MLFLOW = """
import json
from contextlib import nullcontext
from pathlib import Path

FILE = Path("sent.json")
sent = json.loads(FILE.read_text()) if FILE.exists() else []
set_experiment = lambda name: None

def search_runs(filter_string, output_format):
    return [run for run in sent if run["tag"] in filter_string]

def start_run(run_name):
    sent.append({"name": run_name})
    return nullcontext()

def log_params(values):
    sent[-1]["params"] = values

def log_metrics(values):
    sent[-1]["metrics"] = values

def set_tag(name, value):
    sent[-1]["tag"] = value
    FILE.write_text(json.dumps(sent))
"""


def call(folder, script, *arguments):
    """Run an example in a folder, whose modules come first."""
    path = os.pathsep.join([str(folder), str(ROOT / "workflow")])
    subprocess.run(
        [sys.executable, ROOT / "examples" / script, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )


def test_runs_are_sent_to_a_tracker_once(tmp_path):
    (tmp_path / "mlflow.py").write_text(MLFLOW)
    for _ in range(2):
        call(tmp_path, "publish.py", "mlflow", GOLDEN / "results.csv")
    sent = json.loads((tmp_path / "sent.json").read_text())
    assert len(sent) == len({run["tag"] for run in sent}) == 13
    assert sent[0]["name"].startswith("bridgetower-dataloading cpu workers=0")
    assert sent[0]["params"]["device"] == "cpu"
    assert sent[0]["metrics"]["samples_per_s"] > 0


def test_a_run_becomes_a_timeline(tmp_path):
    run = GOLDEN.parent / "studies/runs/vit-speedups/cpu/size=tiny~technique=baseline/rep1-0a1b2c3d"
    call(tmp_path, "timeline.py", run, tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [event for event in trace if event["ph"] == "X"]
    assert {"step 1", "data wait", "compute"} <= {event["name"] for event in slices}
    assert all(event["dur"] > 0 for event in slices)
    steps = [event for event in slices if event["name"].startswith("step ")]
    assert [event["ts"] for event in steps] == sorted(event["ts"] for event in steps)
