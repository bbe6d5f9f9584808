"""The job entry from outside: what it leaves, whatever happens to it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from training_jobs import make_spec, named, processes_below, read_events, survivors

from faults import fault
from feedrate.cli import jobs
from feedrate.config.spec import RunSpec
from feedrate.core import variables
from feedrate.core.files import digest_file, digest_value
from feedrate.core.variables import DriverCall
from feedrate.devices.host import parse_list

ENDLESS = {"steps": 100_000, "warmup_steps": 1}
TOKEN = "hf_not_to_be_seen"


def outcome(job):
    return json.loads((job.out / "outcome.json").read_text())


def written(job):
    """The files of the folder in which a job worked."""
    return sorted(p.relative_to(job.place).as_posix() for p in job.place.rglob("*") if p.is_file())


def driver(**values):
    """The variable of a driver on this host."""
    call = DriverCall(**{"pid": os.getpid(), "host": socket.gethostname(), "since": "7", **values})
    return {variables.DRIVER: msgspec.json.encode(call).decode()}


def ranks(job):
    """The processes that train: a warm one is no descendant of its supervisor."""
    files = job.events.parent.glob("events*.jsonl")
    return [named(read_events(file), "start")[0]["pid"] for file in files]


def test_killed_and_started_again_it_leaves_nothing_behind_and_then_all_that_was_promised(start):
    """kill -9 of the supervisor while two data-loader workers run; then the same command."""
    spec = make_spec(workers=2, evaluate=True, save_checkpoints=True, steps=6, ceiling_s=0.05)
    killed = start(msgspec.structs.replace(spec, protocol=make_spec(**ENDLESS).protocol))
    below = killed.until_steps(2)
    (rank,) = ranks(killed)
    loading = processes_below(rank)
    assert len(loading) >= 2
    below += [rank, *loading]
    killed.process.send_signal(signal.SIGKILL)
    row = fault("killed supervisor", "job")
    assert killed.wait()[0] == row.exit_code
    assert row.status is None
    assert survivors(below) == []
    assert not killed.out.exists()

    killed.out.mkdir()  # as Snakemake does
    job = start(spec, cold=True, HF_TOKEN=TOKEN)
    exit_code, stderr = job.wait()
    assert exit_code == 0, stderr
    names = {p.relative_to(job.out).as_posix() for p in job.out.rglob("*") if p.is_file()}
    assert {
        *("spec.json", "events.jsonl", "train.log", "outcome.json"),
        *("trainer/trainer_state.json", "trainer/train_results.json", "trainer/all_results.json"),
        *("trainer/validation_results.json", "trainer/test_results.json"),
        "trainer/checkpoint-6/model.safetensors",
    } <= names
    assert not list(job.out.parent.glob(".*"))  # no workplace is left
    assert msgspec.json.decode((job.out / "spec.json").read_bytes(), type=RunSpec) == spec

    events = read_events(job.out / "events.jsonl")
    assert [e["step"] for e in named(events, "step")] == [1, 2, 3, 4, 5, 6]
    assert {e["kind"] for e in named(events, "ceiling")} == {"live", "loader", "model"}
    assert events[-1] | {"at_s": 0} == {"event": "end", "at_s": 0, "rank": 0, "ok": True}
    (started,) = named(events, "start")
    assert started["environment"]["OMP_NUM_THREADS"] == str(started["cores_granted"])

    word = outcome(job)
    expected = {
        "schema": 2,
        "identity": "0123abcd",
        "status": "ok",
        "infrastructure": False,
        "cause": "",
        "exit_code": 0,
        "attempt": 2,
        "source_digest": "abc",
        "spec_digest": digest_value(msgspec.to_builtins(spec)),
    }
    assert {key: word[key] for key in expected} == expected
    (data,) = named(events, "data")
    assert word["data_digest"] == data["digest"]
    assert word["duration_s"] > 0
    assert 0.2 < word["host_peak_memory_gib"] < 8
    assert word["machine_before"]["other_training_jobs"] >= 0
    assert word["started_at"] < word["ended_at"]
    files = {name: digest_file(job.out / name) for name in names - {"outcome.json"}}
    assert word["files"] == files
    assert "feedrate train" in word["command"]


def test_a_killed_worker_is_a_failed_cell(start):
    job = start(make_spec(workers=1, **ENDLESS), "--quiet")
    below = job.until_steps(1)
    (rank,) = ranks(job)
    os.kill(rank, signal.SIGKILL)
    exit_code, stderr = job.wait()
    row = fault("killed worker", "job")
    assert (exit_code, stderr) == (row.exit_code, "")  # quiet stays quiet
    assert survivors([*below, rank]) == []
    word = outcome(job)
    assert (word["status"], word["infrastructure"]) == row.outcome()
    assert word["cause"].startswith("rank 0 was killed by signal 9 (Killed; from outside")
    assert word["exit_code"] == -9
    assert named(read_events(job.out / "events.jsonl"), "step")


def test_a_killed_loader_worker_is_a_failed_cell_with_its_cause(start):
    job = start(make_spec(workers=1, **ENDLESS))
    job.until_steps(1)
    (rank,) = ranks(job)
    for pid in processes_below(rank):
        with suppress(ProcessLookupError):  # it may have ended with its epoch
            os.kill(pid, signal.SIGKILL)
    exit_code, stderr = job.wait()
    assert exit_code == 0, stderr
    assert outcome(job)["status"] == "failed"
    assert "a loader worker was killed" in outcome(job)["cause"]
    assert "failed: " in stderr


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, fault("scancel", "job").exit_code)],
)
def test_a_signal_ends_everything_and_leaves_no_outcome(start, number, exit_code):
    job = start(make_spec(workers=1, **ENDLESS))
    below = [*job.until_steps(1), *ranks(job)]
    job.process.send_signal(number)
    assert job.wait()[0] == exit_code
    assert survivors(below) == []
    assert not job.out.exists()
    assert written(job) == ["train.log"]


def test_the_drivers_death_ends_the_job(start):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
        job = start(make_spec(**ENDLESS), **driver(pid=process.pid))
        below = [*job.until_steps(1), *ranks(job)]
        process.kill()
    exit_code, stderr = job.wait()
    assert exit_code == fault("killed driver", "job").exit_code
    assert f"the workflow's driver ({process.pid}@{socket.gethostname()}) has died" in stderr
    assert survivors(below) == []


def test_a_job_past_its_time_is_stopped_and_recorded(start):
    job = start(make_spec(**ENDLESS), "--timeout-min", "0.02")
    exit_code, _ = job.wait()
    row = fault("time limit", "job")
    assert (exit_code, outcome(job)["status"]) == (row.exit_code, row.status)
    assert outcome(job)["cause"] == "stopped after 0.02 min (protocol.timeout_min)"


def test_two_ranks_under_torchrun_and_a_driver_on_another_host_is_not_looked_for(start):
    elsewhere = driver(pid=2**22, host="another-host")
    job = start(make_spec(count=2, steps=3, workers=1, ceiling_s=0.05), **elsewhere)
    exit_code, stderr = job.wait(200)
    assert exit_code == 0, stderr
    assert outcome(job)["status"] == "ok", outcome(job)["cause"]
    blocks, cores, losses = [], [], []
    for rank, name in enumerate(("events.jsonl", "events.rank1.jsonl")):
        events = read_events(job.out / name)
        assert {event["rank"] for event in events} == {rank}
        (started,) = named(events, "start")
        assert started["world_size"] == 2
        cores.append(set(parse_list(started["cores"])))
        losses.append(named(events, "step")[-1]["loss"])
        assert named(events, "window")[0]["samples"] == 2 * 4
        blocks.append([(e["round"], e["kind"], e["samples"]) for e in named(events, "ceiling")])
        assert all(e["samples"] % 4 == 0 < e["wall_s"] for e in named(events, "ceiling"))
        assert {"forward", "backward", "optimizer", "decode"} <= set(
            named(events, "stages")[0]["seconds"]
        )
        assert named(events, "strategy")[0]["ddp"] == {
            "ddp_bucket_mb": 25,
            "ddp_static_graph": False,
            "ddp_bucket_view": False,
        }
    assert not named(read_events(job.out / "events.rank1.jsonl"), "trainer")
    # Both ranks make the same blocks of the same length, in the same order.
    assert blocks[0] == blocks[1]
    assert cores[0].isdisjoint(cores[1]) or len(os.sched_getaffinity(0)) == 1
    assert losses[0] != losses[1], "each has rows of its own"
    assert {kind for _, kind, _ in blocks[0]} == {"live", "loader", "model", "exchange"}


def test_a_rank_killed_under_torchrun_takes_the_others_with_it(start):
    job = start(make_spec(count=2, **ENDLESS))
    below = [*job.until_steps(1), *ranks(job)]
    rank = named(read_events(job.events.with_name("events.rank1.jsonl")), "start")[0]["pid"]
    os.kill(rank, signal.SIGKILL)
    exit_code, stderr = job.wait(150)
    assert exit_code == 0, stderr
    assert survivors(below) == []
    assert outcome(job)["status"] == "failed"
    assert outcome(job)["cause"].startswith("rank 1 was killed by signal 9")


def test_want_of_memory_is_a_result(start):
    """The CPU allocator's own error, under a bound on the address space."""
    spec = make_spec(batch_size=24, loader={"max_tokens": 500}, train={"memory_gib": 1.0})
    job = start(spec)
    exit_code, stderr = job.wait()
    assert (exit_code, outcome(job)["status"]) == (0, fault("out of memory", "job").status), stderr
    assert "can't allocate memory" in outcome(job)["cause"]


def test_a_device_that_is_not_there_is_no_outcome(start):
    job = start(make_spec(kind="cuda"))
    exit_code, stderr = job.wait()
    assert exit_code == fault("lost device", "job").exit_code
    assert "no CUDA device" in stderr
    assert "Traceback" not in stderr
    assert not job.out.exists()
    assert written(job) == ["train.log"]
    assert "DeviceError" in (job.place / "train.log").read_text()
    assert str(job.place / "train.log") in stderr


def test_the_last_try_records_the_fault_of_the_machine(start):
    tried = start(make_spec(kind="cuda"), "--try", "1", **driver(retries=1))
    assert tried.wait()[0] == 1
    assert not tried.out.exists()
    last = start(make_spec(kind="cuda"), "--try", "2", **driver(retries=1))
    assert last.wait()[0] == 0
    word = outcome(last)
    assert (word["status"], word["infrastructure"]) == ("failed", True)
    assert "no CUDA device" in word["cause"]
    assert set(word["files"]) == {"spec.json", "train.log"}
    assert not list(last.out.parent.glob(".*"))


@pytest.fixture
def changed(tiny_prepared, tmp_path):
    """A copy of the prepared data with one image changed after preparation."""
    copy = tmp_path / "prepared"
    shutil.copytree(tiny_prepared, copy)
    image = next((copy / "images").iterdir())
    image.write_bytes(image.read_bytes()[:-1] + b"x")
    return copy


@pytest.fixture
def refusal(tmp_path, capsys, monkeypatch):
    """The line that a job prints whose inputs are not as they should be; it leaves no outcome."""
    monkeypatch.chdir(tmp_path)

    def _refusal(spec, prepared, *options):
        text = spec if isinstance(spec, str) else msgspec.json.encode(spec).decode()
        words = ["--spec", text, "--data", str(prepared / "manifest.json"), "--out", "out"]
        assert jobs.run("train", [*words, *options]) == fault("damaged data", "job").exit_code
        assert not Path("out").exists()
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return _refusal


def test_data_that_is_not_as_prepared_is_no_outcome(refusal, changed):
    assert ".jpg does not match its recorded checksum" in refusal(make_spec(), changed)


def test_a_store_that_is_missing_is_no_outcome(refusal, tiny_prepared):
    spec = make_spec(loader={"decode": "cache"})
    line = refusal(spec, tiny_prepared, "--store", "store/index.json")
    assert "index.json: no such file; decode: cache needs the store" in line


def test_fetched_weights_that_were_changed_are_no_outcome(refusal, tiny_prepared):
    weights = Path("resources/checkpoints/someone--bridge@v1/model.safetensors")
    weights.parent.mkdir(parents=True)
    weights.write_text("fetched")
    fetched = {"name": "someone/bridge", "revision": "v1", "commit": "0"}
    fetched |= {"sha256": {weights.name: digest_file(weights)}}
    (weights.parent / "fetched.json").write_text(json.dumps(fetched))
    weights.write_text("changed")
    spec = make_spec(model={"checkpoint": "someone/bridge", "revision": "v1"})
    line = refusal(spec, tiny_prepared)
    assert f"{weights} does not match its recorded checksum: delete the folder" in line


def test_the_supervisor_needs_no_heavy_library():
    code = (
        "import sys, feedrate.jobs.supervisor; "
        "print([m for m in ('torch', 'numpy', 'transformers', 'pandas', 'pyarrow', 'PIL') "
        "if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_no_token_reaches_the_log(start, tiny_prepared, tmp_path):
    """The token stands in a path that a failing job prints."""
    prepared = tmp_path / f"data-{TOKEN}"
    shutil.copytree(tiny_prepared, prepared)
    spec = make_spec(model={"checkpoint": f"./{TOKEN}"})
    job = start(spec, prepared=prepared, HF_TOKEN=TOKEN)
    exit_code, stderr = job.wait()
    assert exit_code == 0
    assert outcome(job)["status"] == "failed"
    assert outcome(job)["cause"] == "model.checkpoint: ./***: no such folder"
    for name in ("train.log", "events.jsonl", "outcome.json"):
        assert TOKEN not in (job.out / name).read_text()
    assert TOKEN not in stderr
    assert digest_file(prepared / "manifest.json") == outcome(job)["data_digest"]
