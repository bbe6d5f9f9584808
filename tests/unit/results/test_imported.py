"""Records of runs that others made."""

import json

import foreign_runs as foreign
import msgspec
import pytest

from feedrate.config.additions import Import
from feedrate.config.devices import Peak
from feedrate.results.crate import Writer
from feedrate.results.imported import Imported, import_runs, imported
from feedrate.results.params import ImportDevice, ImportSettings
from feedrate.results.record import read_document

LEVELS = {"workers": 2, "decode": "host"}
PEAK = Peak(precision="bf16", datasheet_tflops=432.0, source="data sheet")
GAUDI2 = ImportDevice(count=8, variant_of=None, peaks=[PEAK])


def settings(folder, device=GAUDI2, pixels_only=False, **entry):
    return ImportSettings(
        study="loading",
        factors=["workers", "decode"],
        imports=[Import(folder=str(folder), study="loading", device="gaudi2", **entry)],
        devices={"gaudi2": device},
        pixels_only=pixels_only,
    )


def record(folder, **entry):
    (found,) = imported(settings(folder, **entry)).records
    return found


def failed(found):
    return [check.name for check in found.checks if not check.passed]


def test_a_record_has_what_is_there_and_nothing_guessed(tmp_path):
    found = record(foreign.trainer_folder(tmp_path / "a", total_flos=1e15), levels=LEVELS)
    assert found.provenance.provenance == "imported"
    assert (found.status, found.cell) == ("ok", "workers=2~decode=host")
    assert found.trainer.samples_per_s == 847.7
    assert found.trainer.peak_memory_gib == 63.55
    assert found.evaluation == {"eval_loss": 0.2}
    assert (found.measurement, found.spec, found.model_parameters) == (None, None, None)
    assert found.provenance.host == found.provenance.device_model == ""
    assert set(found.made_from.files) >= {"train_results.json", "eval_results.json"}


def test_levels_that_are_not_given_stay_unknown(tmp_path):
    folder = foreign.milabench_file(tmp_path / "a")
    assert record(folder).cell == "unknown"
    assert record(folder, levels={"workers": 2}).levels == {"workers": 2}


def test_a_rate_that_its_own_flops_refute_is_invalid(tmp_path):
    folder = foreign.trainer_folder(tmp_path / "a", total_flos=4e18)
    found = record(folder, precision="bf16")
    assert (found.status, failed(found)) == ("invalid", ["mfu_at_most_100_percent"])
    assert "393% of the peak in bf16" in found.cause
    good = record(folder, flops_per_sample=1e12)
    assert (good.status, failed(good)) == ("ok", [])
    assert failed(record(folder, flops_per_sample=5e12)) == ["mfu_at_most_100_percent"]


def test_total_flos_of_models_of_pictures_refute_nothing(tmp_path):
    folder = foreign.trainer_folder(tmp_path / "a", total_flos=4e18)
    (found,) = imported(settings(folder, pixels_only=True)).records
    assert found.status == "ok"


def test_the_rate_of_a_resumed_run_is_invalid_and_its_own_rate_is_told(tmp_path):
    folder = foreign.trainer_folder(tmp_path / "a", total_flos=None)
    (folder / "a.log").write_text("Continuing training from global step 324\n" + foreign.TRAINING)
    found = record(folder)
    assert failed(found) == ["whole_run_timed"]
    assert "over the 325 steps since: 424.2 samples/s" in found.cause


@pytest.mark.parametrize("loss", [float("nan"), 0.0])
def test_a_loss_that_is_not_finite_or_zero_is_invalid(tmp_path, loss):
    folder = foreign.trainer_folder(tmp_path / "a", total_flos=None, train_loss=loss)
    (folder / "trainer_state.json").unlink()
    assert failed(record(folder)) == ["loss_finite"]


def test_samples_that_do_not_fit_the_batch_are_invalid(tmp_path):
    folder = foreign.trainer_folder(tmp_path / "a", total_flos=None)
    assert failed(record(folder, batch_size=48)) == []
    assert failed(record(folder, batch_size=16)) == ["samples_identity"]


def test_a_rate_of_steps_needs_the_batch(tmp_path):
    (tmp_path / "a.log").write_text(foreign.TRAINING + foreign.bars(1, 9))
    assert failed(record(tmp_path)) == ["rate_reported"]
    assert record(tmp_path, batch_size=48).trainer.samples_per_s == 48 * 8


def test_a_record_has_the_line_that_its_rate_was_read_from(tmp_path):
    def line(folder):
        return record(folder).made_from.line

    known = line(foreign.trainer_folder(tmp_path / "trainer", total_flos=None))
    assert known.startswith("train_results.json:1: ")
    assert '"train_samples_per_second": 847.7,' in known
    (tmp_path / "log").mkdir()
    text = foreign.TRAINING + foreign.bars() + "\n" + foreign.FINAL
    (tmp_path / "log/a.log").write_text(text + "later\n")
    assert line(tmp_path / "log").startswith("a.log:4: ")
    assert "'train_samples_per_second': '640.5'" in line(tmp_path / "log")
    assert '"rate": 300.0' in line(foreign.milabench_file(tmp_path / "mila"))


def test_a_cut_line_has_no_part_of_a_secret(tmp_path):
    token = "hf_AbCdEfGhIjKlMnOpQr"
    file = foreign.trainer_folder(tmp_path / "a") / "train_results.json"
    found = json.loads(file.read_text())
    rate = {"train_samples_per_second": found["train_samples_per_second"]}
    for filler in range(120, 152, 5):
        file.write_text(json.dumps({"x": f"{token} {'y' * filler}"} | rate | found))
        told = record(tmp_path / "a").made_from.line
        assert "847.7" in told
        assert not any(token[at : at + 4] in told for at in range(len(token) - 3))


def test_a_rate_that_no_line_states_has_none(tmp_path):
    (tmp_path / "a.log").write_text(foreign.TRAINING + foreign.bars(1, 9))
    assert record(tmp_path, batch_size=48).made_from.line == ""


def test_failures_are_results_with_their_cause(tmp_path):
    (tmp_path / "a.log").write_text(foreign.TRAINING + foreign.OUT_OF_MEMORY)
    found = record(tmp_path)
    assert found.made_from.line.startswith("a.log:4: torch.OutOfMemoryError")
    assert found.status == "out_of_memory"
    assert found.cause.startswith("device out of memory: torch.OutOfMemoryError")
    (tmp_path / "a.log").write_text("ModuleNotFoundError: No module named 'habana'")
    assert record(tmp_path).status == "failed"


def test_runs_of_other_devices_and_names_are_left_out_with_a_remark(tmp_path):
    folder = foreign.habana_tests(tmp_path / "a")
    found = imported(settings(folder, only="*ridge*"))
    assert [one.trainer.samples_per_s for one in found.records] == [921.069, 904.93]
    found = imported(settings(folder, only="*absent*"))
    assert found.records == []
    assert all("fits `only`" in one.note for one in found.files)


def test_access_tokens_reach_no_record(tmp_path):
    line = "OSError: 401 Client Error: token hf_abcdefghijklmnopqrstuv is invalid"
    (tmp_path / "a.log").write_text(line)
    text = json.dumps(msgspec.to_builtins(record(tmp_path)))
    assert "bad token" in text
    assert "hf_abc" not in text


def test_what_the_job_writes_is_read_back(tmp_path):
    wanted = settings(foreign.milabench_file(tmp_path / "a"), levels=LEVELS)
    import_runs(wanted, tmp_path / "imported.json")
    assert read_document(tmp_path / "imported.json", Imported) == imported(wanted)


def run_folder(root, status="ok", study="loading", **more):
    """A run of feedrate itself in `results/`, with a log beside its record."""
    run = root / "results/loading/gaudi2/workers=2~decode=host/rep1"
    run.mkdir(parents=True)
    (run / "train.log").write_text("{'train_runtime': 2.0, 'train_samples_per_second': 1.0}\n")
    known = {"study": study, "device": "gaudi2", "cell": "workers=2~decode=host", "repeat": 1}
    figures = {"measurement": {"samples_per_s": 812.5}, "trainer": {"loss": 0.25}, "cause": ""}
    record = known | {"levels": LEVELS, "status": status} | figures | more
    (run / "record.json").write_text(json.dumps(record))
    return root


def test_an_archive_is_imported_with_the_levels_and_windows_of_its_records(tmp_path):
    run_folder(tmp_path / "site")
    writer = Writer(tmp_path / "site.zip")
    for path in sorted((tmp_path / "site").rglob("*")):
        if path.is_file():
            writer.add(str(path.relative_to(tmp_path / "site")), path.read_bytes())
    writer.finish({}, [])
    for place in (tmp_path / "site", tmp_path / "site.zip"):
        found = imported(settings(place))
        (one,) = found.records
        assert (one.status, one.cell, one.levels) == ("ok", "workers=2~decode=host", LEVELS)
        assert (one.trainer.samples_per_s, one.trainer.loss) == (812.5, 0.25)
        assert one.provenance.provenance == "imported"
        (log,) = [file for file in found.files if file.file.endswith("train.log")]
        assert "which counts" in log.note


def test_records_of_other_studies_are_left_out_and_those_that_failed_have_no_figures(tmp_path):
    assert imported(settings(run_folder(tmp_path / "a", study="other"))).records == []
    assert record(run_folder(tmp_path / "b", status="out_of_memory")).status == "out_of_memory"
    invalid = record(run_folder(tmp_path / "c", status="invalid", cause="noise"))
    assert (invalid.status, invalid.trainer.samples_per_s) == ("failed", None)
    assert "noise" in invalid.cause
    truncated = run_folder(tmp_path / "d")
    next(truncated.rglob("record.json")).write_text('{"study": "loading"}')
    (file,) = [f for f in imported(settings(truncated)).files if f.file.endswith("record.json")]
    assert "not a record of a run" in file.note


@pytest.mark.parametrize("levels", [None, [1], {"workers": None}, {"workers": float("nan")}])
def test_levels_that_are_none_are_told_and_not_imported(tmp_path, levels):
    found = imported(settings(run_folder(tmp_path / "a", levels=levels)))
    assert found.records == []
    (file,) = [one for one in found.files if one.file.endswith("record.json")]
    assert "not a record of a run" in file.note


def test_files_of_one_name_in_two_imports_are_told_apart(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.pdf").write_text("x")
    both = settings(tmp_path / "a", source="somebody")
    both.imports.extend(settings(tmp_path / "b").imports)
    assert [one.file for one in imported(both).files] == [
        "somebody: notes.pdf",
        f"{tmp_path / 'b'}: notes.pdf",
    ]
