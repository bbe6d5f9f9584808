"""`--cell`: only some cells are trained, and the report shows all that exists."""

import re

from mini_project import MINI

WORKERS = {"workers": {"sets": "loader.workers", "levels": [0, 1, 2]}}
MEASURED = ("ok", "invalid")
"""Statuses of a run that was made; on a busy machine it is invalid."""


def test_only_these_cells_are_trained_and_a_failed_one_is_not_tried_again(ready):
    ready.study(factors=MINI["factors"] | WORKERS)
    ready.run("--cell", "workers=0")
    cells = ready.root / "runs/mini/cpu"
    (outcome,) = cells.glob("*/rep1-*/outcome.json")
    assert outcome.parts[-3] == "workers=0~decode=host"
    assert ready.record("workers=0~decode=host")["status"] in MEASURED
    assert ready.record("workers=1~decode=host")["status"] == "missing"
    outcome.write_text(outcome.read_text().replace('"status": "ok"', '"status": "failed"'))
    assert ready.planned()["train_cpu"] == 3, "the failed one too"
    shown = ready.run("--cell", "workers=2", "--dry-run")
    assert re.search(r"^train_cpu +1$", shown.stdout, flags=re.M)
    assert "\n1 run, " in shown.stdout or "\n1 run; " in shown.stdout
    done = ready.run("--cell", "workers=2")
    status = ready.record("workers=2~decode=host")["status"]
    assert done.returncode == MEASURED.index(status), done.stdout
    assert ready.record("workers=0~decode=host")["status"] == "failed"
    assert len(list(cells.glob("*/rep1-*/"))) == 2
    assert "workers=2" in (ready.root / "report.html").read_text()
    refused = ready.run("--cell", "workers=2,decode=device")
    assert (refused.returncode, "cpu lacks decode_device" in refused.stdout) == (2, True)
    failed = ready.run("--cell", "workers=0", "--dry-run")
    assert re.search(r"^train_cpu +1$", failed.stdout, flags=re.M), "a chosen one is tried again"
