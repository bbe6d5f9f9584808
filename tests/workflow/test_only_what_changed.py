"""An edit reruns what it changes and nothing else: jobs are counted in the next plan."""

import os
import re
import shutil
import time

from mini_project import MINI

TRAIN = "train_cpu"


def test_captions_labels_and_prices_are_shown_and_train_nothing(edited):
    edited.edit("report/captions/figure_answer.rst", "\n", " Seen from afar.\n")
    edited.edit("config/devices.yaml", "price_usd_per_hour: null", "price_usd_per_hour: 1.5")
    edited.edit("config/devices.yaml", "label: ", "label: The ")
    planned = edited.planned()
    assert planned
    assert TRAIN not in planned
    assert "preprocess_dataset" not in planned


def test_figure_code_redraws_the_figure(edited):
    edited.edit("workflow/feedrate/report/figures/answer.py", "\n\n\n", "\n\nANSWER = 42\n\n\n")
    planned = edited.planned()
    assert planned["plot_answer"] == 1
    assert not planned.keys() & {TRAIN, "preprocess_dataset", "parse_logs"}


def test_a_peak_parses_again_and_trains_nothing(edited):
    devices = edited.root / "config/devices.yaml"
    text = devices.read_text()
    head, _, tail = text.partition("\ncpu:")
    assert tail
    peak = "peaks: [{precision: fp32, datasheet_tflops: 1.0, source: a guess}]"
    devices.write_text(head + "\ncpu:" + tail.replace("peaks: []", peak, 1))
    planned = edited.planned()
    assert planned["parse_logs"] == 1
    assert TRAIN not in planned


def test_one_more_level_trains_only_its_runs(edited):
    levels = {"sets": "loader.workers", "levels": [0, 1, 2]}
    edited.study(factors=MINI["factors"] | {"workers": levels})
    assert edited.planned()[TRAIN] == 1


def test_one_more_repeat_trains_only_the_new_repeats(edited):
    edited.study(protocol=MINI["protocol"] | {"repeats": 2})
    assert edited.planned()[TRAIN] == 2


def test_a_failed_run_is_tried_again_and_out_of_memory_only_when_asked_for(edited):
    """As its cause tells where it was the host's, and docs/clusters.md."""
    outcome = edited.root / "results/mini/cpu/workers=1~decode=host/rep1/outcome.json"
    text, stat = outcome.read_text(), outcome.stat()
    assert '"status": "ok"' in text

    def end(status):
        outcome.write_text(text.replace('"status": "ok"', f'"status": "{status}"'))
        os.utime(outcome, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    end("failed")
    assert edited.planned()[TRAIN] == 1
    end("out_of_memory")
    assert TRAIN not in edited.planned()
    asked = ("--forcerun", str(outcome.relative_to(edited.root)))
    assert edited.planned(*asked)[TRAIN] == 1
    done = edited.call("snakemake", "--profile", "profiles/local", *asked)
    assert done.returncode == 0, done.stdout
    assert edited.record("workers=1~decode=host")["status"] == "ok"
    assert edited.planned() == {}


def test_a_published_number_or_a_claim_trains_nothing(edited):
    claim = {"id": "c", "text": "t", "expression": "*[workers=1] / *[workers=0]", "more_than": 1}
    edited.study(claims=[claim])
    planned = edited.planned()
    assert planned["check_claims"] == 1
    assert TRAIN not in planned
    assert "parse_logs" not in planned


def test_one_data_image_prepares_and_trains_all(edited):
    image = min((edited.root / "resources/datasets/small/raw").rglob("*.jpg"))
    other = max((edited.root / "resources/datasets/small/raw").rglob("*.jpg"))
    image.write_bytes(other.read_bytes())
    planned = edited.planned()
    assert planned["preprocess_dataset"] == 1
    assert planned[TRAIN] == 2


def test_training_code_trains(edited):
    edited.edit("workflow/feedrate/jobs/meter.py", "\n\n\n", "\n\nGREETING = 'hello'\n\n\n")
    assert edited.planned()[TRAIN] == 2


def test_comments_docstrings_new_times_and_more_time_for_a_job_run_nothing(edited):
    time.sleep(0.01)
    for folder in ("workflow", "config", "resources", "report"):
        for file in (edited.root / folder).rglob("*"):
            if file.is_file():
                os.utime(file)
    path = edited.root / "workflow/feedrate/jobs/meter.py"
    path.write_text("# A remark.\n" + path.read_text())
    edited.edit("workflow/feedrate/jobs/meter.py", '"""', '"""Really: ')
    edited.study(protocol=MINI["protocol"] | {"timeout_min": 300})
    assert edited.planned() == {}


def test_results_from_elsewhere_are_compared_with_the_plan(edited):
    """Snakemake knows nothing of files that it did not make in this folder."""
    shutil.rmtree(edited.root / ".snakemake")
    planned = edited.planned()
    assert planned["parse_logs"] == 1
    assert TRAIN not in planned
    train = MINI["settings"]["train"] | {"learning_rate": 2e-5}
    edited.study(settings=MINI["settings"] | {"train": train})
    assert edited.planned()[TRAIN] == 2


def test_results_of_other_settings_that_were_put_back_are_made_again(edited):
    outcome = edited.root / "results/mini/cpu/workers=1~decode=host/rep1/outcome.json"
    stat = outcome.stat()
    outcome.write_text(re.sub(r'"spec_digest": ".', '"spec_digest": "!', outcome.read_text()))
    os.utime(outcome, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert edited.planned()[TRAIN] == 1
