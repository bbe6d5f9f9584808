"""Two jobs of one run, as real processes: nothing is lost or written twice."""

import json
import tempfile

from training_jobs import make_spec, named, read_events

from feedrate.jobs.workplace import leftovers


def pids(folder):
    """The process that trained."""
    return [event["pid"] for event in named(read_events(folder / "events.jsonl"), "start")]


def forced(job_out):
    """A run whose outcome Snakemake has removed, because its user wants it again."""
    job_out.mkdir(parents=True)
    (job_out / "events.jsonl").write_text('{"event": "start", "pid": 1}\n')


def test_on_two_hosts_both_measure_and_the_first_to_publish_counts(start, tmp_path):
    started = []
    for name in ("one", "other"):  # a host has its own lock
        (tmp_path / name).mkdir()
        own = {"project": tmp_path / name, "TMPDIR": tempfile.mkdtemp()}
        started.append(start(make_spec(steps=10), **own))
    forced(started[0].out)
    for job in started:
        job.until_steps(1)
    trained = [pids(job.place) for job in started]
    ends = [job.wait() for job in started]
    assert [code for code, _ in ends] == [0, 0], ends
    first = 0 if "another job has published" in ends[1][1] else 1
    assert "another job has published" not in ends[first][1]
    assert pids(started[0].out) == trained[first]
    assert json.loads((started[0].out / "outcome.json").read_text())["status"] == "ok"
    assert [path.name for path in started[0].out.parent.iterdir()] == [started[0].out.name]


def test_on_one_host_the_second_waits_and_takes_the_firsts_result(start, tmp_path):
    first = start(make_spec(steps=10), project=tmp_path)
    first.until_steps(1)
    trained = pids(first.place)
    first.out.mkdir()  # by Snakemake, for the second
    second = start(make_spec(steps=10), project=tmp_path)
    exit_code, stderr = second.wait()
    assert (first.wait()[0], exit_code) == (0, 0)
    assert "waiting: another job of feedrate runs on this host" in stderr
    assert f"another job has published {first.out}" in stderr
    assert pids(first.out) == trained
    third = start(make_spec(steps=10), project=tmp_path)
    exit_code, stderr = third.wait()
    assert exit_code == 0
    assert f"{first.out} is complete already" in stderr
    assert pids(first.out) == trained
    assert leftovers(first.out) == []
