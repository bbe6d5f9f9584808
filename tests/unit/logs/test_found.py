"""Files as found in the wild, of every format that can be imported."""

import json
import subprocess
import sys

import foreign_runs as foreign
import pytest

from feedrate.core.errors import LogError
from feedrate.logs.reading import LFS, find_runs, lines, load_json


def only(folder):
    """The one run in a folder, and the remarks on its files."""
    runs, files = find_runs(folder)
    assert len(runs) == 1
    return runs[0], {one.file: one.note for one in files}


def test_a_trainers_folder_is_one_run_with_its_own_memory_figures(tmp_path):
    run, notes = only(foreign.trainer_folder(tmp_path / "a"))
    assert run.metrics["train_samples_per_second"] == 847.7
    assert run.metrics["max_memory_allocated (GB)"] == 63.55
    assert run.evaluation == {"eval_loss": 0.2}
    assert run.cause.name == "success"
    assert notes["model.safetensors"] == "no format of results or logs has this name"


def test_evaluation_keys_merged_over_training_keys_are_left_out(tmp_path):
    folder = foreign.trainer_folder(tmp_path / "a")
    (folder / "train_results.json").unlink()
    run, notes = only(folder)
    assert "max_memory_allocated (GB)" not in run.metrics
    assert "an evaluation has overwritten them" in notes["all_results.json"]


def test_events_of_tensorboard_and_of_a_resumed_job(tmp_path):
    run, _ = only(foreign.events_folder(tmp_path / "a"))
    assert run.metrics["train_samples_per_second"] == pytest.approx(847.7)
    assert run.resumed_from is None
    resumed, _ = only(foreign.events_folder(tmp_path / "b", first_step=510))
    assert resumed.resumed_from == 500


def test_a_report_of_optimum_benchmark_is_read_without_its_warm_up(tmp_path):
    run, _ = only(foreign.benchmark_report(tmp_path / "a"))
    assert run.metrics["train_samples_per_second"] == 512
    assert run.metrics["train_steps_per_second"] == 2
    assert run.metrics["max_memory_allocated (GB)"] == pytest.approx(18.63, abs=0.01)
    assert run.library == "optimum-benchmark 0.6.0"


def test_events_of_milabench_give_the_median_rate(tmp_path):
    folder = foreign.milabench_file(tmp_path / "a")
    run, notes = only(folder)
    assert run.metrics["train_samples_per_second"] == 300
    assert (run.metrics["train_loss"], run.cause.name) == (5.0, "success")
    assert notes["resnet50.D0.data"] == "1 line is no event; median of 3 reported rates"
    with (folder / "resnet50.D0.data").open("a") as stream:
        stream.write("\n\n[]\n")
    _, notes = only(folder)
    assert notes["resnet50.D0.data"].startswith("2 lines are no events; ")
    tokens, notes = only(foreign.milabench_file(tmp_path / "b", code=1, units="Tok/s"))
    assert "train_samples_per_second" not in tokens.metrics
    assert tokens.cause.name == "other error"
    assert "Tok/s" in notes["resnet50.D0.data"]
    ended, _ = only(foreign.milabench_file(tmp_path / "c", code=-15, stopped=True))
    assert ended.cause.name == "success"  # it had enough rates


def test_results_of_optimum_habanas_tests_name_device_and_test(tmp_path):
    runs, _ = find_runs(foreign.habana_tests(tmp_path / "a"))
    found = {(run.device, run.metrics["train_samples_per_second"]) for run in runs}
    assert found == {("gaudi2", 904.93), ("gaudi3", 783.5), ("gaudi2", 60.0), ("gaudi2", 921.069)}


def test_several_jobs_in_one_log_are_several_runs(tmp_path):
    one = foreign.TRAINING + foreign.bars()
    text = one + foreign.OUT_OF_MEMORY + one + "\n" + foreign.FINAL
    (tmp_path / "slurm-1.out").write_text(text)
    failed, finished = find_runs(tmp_path)[0]
    assert failed.cause.name == "device out of memory"
    assert finished.metrics["train_samples_per_second"] == 640.5
    assert (failed.label, finished.label) == ("job 1 of 2", "job 2 of 2")


def test_a_job_that_failed_is_no_part_of_one_that_finished(tmp_path):
    (tmp_path / "slurm-17.out").write_text(foreign.TRAINING + foreign.bars() + "\n" + foreign.FINAL)
    text = foreign.TRAINING + foreign.bars() + "\n" + foreign.OUT_OF_MEMORY
    (tmp_path / "slurm-18.out").write_text(text)
    finished, failed = find_runs(tmp_path)[0]
    assert (finished.files, failed.files) == (("slurm-17.out",), ("slurm-18.out",))
    assert (finished.cause.name, failed.cause.name) == ("success", "device out of memory")


def test_both_streams_of_a_job_are_one_run(tmp_path):
    (tmp_path / "slurm-17.out").write_text(foreign.TRAINING + foreign.FINAL)
    (tmp_path / "slurm-17.err").write_text(foreign.bars() + "\n" + foreign.OUT_OF_MEMORY)
    run, _ = only(tmp_path)
    assert len(run.files) == 2
    assert run.metrics["train_samples_per_second"] == 640.5


def test_a_log_that_several_ranks_write_is_one_job(tmp_path):
    (tmp_path / "a.log").write_text(foreign.TRAINING * 8 + foreign.bars() + "\n" + foreign.FINAL)
    run, _ = only(tmp_path)
    assert run.cause.name == "success"


def test_a_progress_bar_gives_steps_without_the_first_one(tmp_path):
    evaluation = "".join(f"\r 1%|#  | {n}/9 [00:0{n}<02:00]" for n in range(1, 9))
    (tmp_path / "a.log").write_text(foreign.TRAINING + foreign.bars(1, 9) + evaluation)
    run, notes = only(tmp_path)
    assert run.metrics == {"train_steps_per_second": 1.0}
    assert "progress bar" in notes["a.log"]


def test_a_log_belongs_to_the_files_beside_it_and_says_that_it_was_resumed(tmp_path):
    folder = foreign.trainer_folder(tmp_path / "a")
    text = "  Continuing training from global step 130\n" + foreign.bars()
    (folder / "train.log").write_text(foreign.TRAINING + text)
    run, _ = only(folder)
    assert (run.resumed_from, run.metrics["train_runtime"]) == (130, 294.8)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings_languages_and_control_characters(tmp_path, encoding):
    text = "\x1b[31m훈련 训练 Übung\x1b[0m\x07\r\n" + foreign.FINAL
    (tmp_path / "a.log").write_bytes(text.encode(encoding))
    assert next(lines(tmp_path / "a.log")) == "훈련 训练 Übung"
    assert only(tmp_path)[0].metrics["train_runtime"] == 100


def test_bytes_of_another_encoding_cost_only_themselves(tmp_path):
    (tmp_path / "a.log").write_bytes("Übung 学習\n".encode("shift-jis", "replace") + b"\xff\xfe\n")
    assert len(list(lines(tmp_path / "a.log"))) == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (LFS + b"v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"", "empty"),
        (b'{"train_runtime": 1', "truncated"),
        (b"[1]", "not a JSON object"),
    ],
)
@pytest.mark.parametrize("name", ["all_results.json", "benchmark.json", "bert.json"])
def test_files_that_cannot_be_read_say_why(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "good.log").write_text(foreign.FINAL)
    run, notes = only(tmp_path)
    assert run.metrics["train_runtime"] == 100
    assert reason in notes[name]


def test_a_file_whose_error_has_no_message_is_not_called_unknown(tmp_path, monkeypatch):
    def fail(_path):
        raise OSError

    monkeypatch.setattr("feedrate.logs.formats.trainer_json.read", fail)
    (tmp_path / "all_results.json").write_text("{}")
    (tmp_path / "good.log").write_text(foreign.FINAL)
    _, notes = only(tmp_path)
    assert notes["all_results.json"].startswith("OSError; ")


@pytest.mark.parametrize("name", ["a.log", "a.data", "events.out.tfevents.1"])
def test_pointers_in_place_of_logs_say_so(tmp_path, name):
    (tmp_path / name).write_bytes(LFS + b"v1\n")
    runs, files = find_runs(tmp_path)
    assert (runs, "git lfs pull" in files[0].note) == ([], True)


def test_a_truncated_events_file_gives_what_precedes_the_damage(tmp_path):
    folder = foreign.events_folder(tmp_path / "a")
    path = next(folder.rglob("events*"))
    path.write_bytes(path.read_bytes()[:-40])
    assert "train_loss" in only(folder)[0].metrics


def test_a_folder_that_is_missing_is_told(tmp_path):
    with pytest.raises(LogError, match="no such folder or file"):
        find_runs(tmp_path / "absent")


def test_a_long_log_is_read_in_bounded_memory(tmp_path):
    """200 MB with a line that never ends, and the figures after it."""
    path = tmp_path / "a.log"
    with path.open("wb") as stream:
        stream.write(foreign.TRAINING.encode())
        for _ in range(2):
            stream.seek(96 * 2**20, 1)
            stream.write(b"\r 50%|#  | 65/130 [00:10<00:10]\n")
        stream.write(foreign.FINAL.encode())
    script = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from feedrate.logs.reading import find_runs\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "runs, _ = find_runs(Path(sys.argv[1]))\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(grown, runs[0].metrics['train_runtime'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    grown_kib, runtime = done.stdout.split()
    assert float(runtime) == 100
    assert int(grown_kib) < 64 * 1024


def test_a_vocabulary_is_no_log(tmp_path):
    (tmp_path / "vocab.txt").write_text("dog\nKilled\ncat\n")
    runs, files = find_runs(tmp_path)
    assert runs == []
    assert files[0].note == "no format of results or logs has this name"


def test_json_of_utf_16_is_read(tmp_path):
    (tmp_path / "a.json").write_bytes(json.dumps({"a": 1}).encode("utf-16"))
    assert load_json(tmp_path / "a.json") == {"a": 1}
