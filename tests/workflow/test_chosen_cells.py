"""`--cell`: only some cells are trained, and the report shows all that exists."""

import re

from mini_project import MINI

WORKERS = {"workers": {"sets": "loader.workers", "levels": [0, 1, 2]}}


def test_only_these_cells_are_trained_and_a_failed_one_is_not_tried_again(edited):
    cells = edited.root / "runs/mini/cpu"
    (failed,) = cells.glob("workers=0~decode=host/rep1-*/outcome.json")
    failed.write_text(failed.read_text().replace('"status": "ok"', '"status": "failed"'))
    edited.study(factors=MINI["factors"] | WORKERS)
    assert edited.planned()["train_cpu"] == 2, "the failed one too"
    shown = edited.call("feedrate", "run", "--cell", "workers=2", "--dry-run")
    assert re.search(r"^train_cpu +1$", shown.stdout, flags=re.M)
    assert "\n1 run, " in shown.stdout
    done = edited.run("--cell", "workers=2")
    assert done.returncode == 0, done.stdout
    assert edited.record("workers=2~decode=host")["status"] == "ok"
    assert edited.record("workers=0~decode=host")["status"] == "failed"
    assert "workers=2" in (edited.root / "results/mini/cells.csv").read_text()
    refused = edited.run("--cell", "workers=2,decode=device")
    assert (refused.returncode, "cpu lacks decode_device" in refused.stdout) == (2, True)
    again = edited.run("--cell", "workers=0")
    assert again.returncode == 0, again.stdout
    assert len(list(cells.glob("workers=0~decode=host/rep1-*/"))) == 2
    assert "There are no runs to do." in edited.run("--cell", "workers=0", "-n").stdout
