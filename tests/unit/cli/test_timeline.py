"""`python -m feedrate timeline`: the trace against the rules of its format, and the events."""

import json

import pytest

from feedrate import __main__ as entry
from feedrate.cli.timeline import BLOCKS, PARTS, STAGES, STEPS, trace_of
from feedrate.jobs.events import Ceiling, Evaluation, RankEvents, Stages, Step, Window, encode

BEGIN_S = 1000.0


def a_rank(rank=0, begin_s=BEGIN_S):
    """Three steps of 1 s, each with a data wait of 0.2 s; a pause of 0.5 s before the last."""
    ends = (1.0, 2.0, 3.5)
    told = {"step_s": 1.0, "data_wait_s": 0.2, "copy_wait_s": 0.1, "samples": 8, "memory_gib": 2.0}
    steps = [Step(rank=rank, step=n, t_s=end, **told) for n, end in enumerate(ends, start=1)]
    dated = {} if begin_s is None else {"at_s": begin_s + 3.5}
    window = Window(rank=rank, first_step=2, last_step=3, steps=2, samples=16, wall_s=2.5, **dated)
    at = [None, None] if begin_s is None else [begin_s + 6.0, begin_s + 8.0]
    evaluation = Evaluation(rank=rank, split="test", metrics={"predict_runtime": 2.0}, at_s=at[0])
    block = Ceiling(rank=rank, kind="loader", samples=8, wall_s=1.0, at_s=at[1])
    stages = Stages(rank=rank, steps=4, seconds={"decode": 0.1, "forward": 0.3})
    return RankEvents(
        steps=steps, window=window, evaluations=[evaluation], ceilings=[block], stages=stages
    )


def slices(trace, rank=0):
    """Name, start and length in s of each slice, by thread."""
    found = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["pid"] == rank:
            found.setdefault(event["tid"], []).append(
                (event["name"], event["ts"] / 1e6, event["dur"] / 1e6)
            )
    return found


def test_steps_waits_and_blocks_are_where_they_were():
    found = slices(trace_of({0: a_rank()}))
    assert found[STEPS] == [
        ("step 1", 0.0, 1.0),
        ("step 2", 1.0, 1.0),
        ("pause", 2.0, 0.5),
        ("step 3", 2.5, 1.0),
    ]
    assert found[PARTS][-3:] == [
        ("data wait", 2.5, 0.2),
        ("host to device", 2.7, 0.1),
        ("compute", pytest.approx(2.8), pytest.approx(0.7)),
    ]
    assert found[BLOCKS] == [("evaluation: test", 4.0, 2.0), ("block 0: loader", 7.0, 1.0)]
    assert found[STAGES] == [("decode", 8.0, 0.1), ("forward", 8.1, 0.3)]


def test_a_part_without_a_length_is_left_out():
    rank = a_rank()
    rank.steps[0] = Step(rank=0, step=1, t_s=1.0, step_s=1.0, data_wait_s=0.2, copy_wait_s=0.0)
    assert [name for name, *_ in slices(trace_of({0: rank}))[PARTS][:2]] == ["data wait", "compute"]


def test_ranks_are_aligned_by_their_clocks():
    trace = trace_of({0: a_rank(0), 1: a_rank(1, BEGIN_S + 0.25)})
    assert slices(trace, 0)[STEPS][0] == ("step 1", 0.0, 1.0)
    assert slices(trace, 1)[STEPS][0] == ("step 1", 0.25, 1.0)


def test_blocks_of_undated_events_follow_each_other_and_say_so():
    trace = trace_of({0: a_rank(begin_s=None)})
    assert slices(trace)[BLOCKS] == [("evaluation: test", 3.5, 2.0), ("block 0: loader", 5.5, 1.0)]
    blocks = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] == BLOCKS]
    assert [e["args"] for e in blocks] == [{"start": "not recorded"}] * 2


def test_the_file_keeps_the_rules_of_the_trace_event_format(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text("")
    for rank, name in ((0, "events.jsonl"), (1, "events.rank1.jsonl")):
        told = a_rank(rank)
        events = [*told.steps, told.window, *told.evaluations, *told.ceilings, told.stages]
        (tmp_path / name).write_text("".join(f"{encode(event)}\n" for event in events))
    assert entry.main(["timeline", ".", "--out", "t.json"]) == 0
    assert "t.json: " in capsys.readouterr().out
    trace = json.loads((tmp_path / "t.json").read_text())
    open_until = {}
    for event in trace["traceEvents"]:
        assert event["ph"] in "XMC"
        assert isinstance(event["pid"], int)
        assert event["name"]
        if event["ph"] == "X":  # complete events of a thread must nest; ours follow each other
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            thread = event["pid"], event["tid"]
            assert event["ts"] >= open_until.get(thread, 0) - 1
            open_until[thread] = event["ts"] + event["dur"]
        elif event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert open_until.keys() <= named


def test_a_folder_without_steps_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text("")
    assert entry.main(["timeline", "nowhere"]) == 2
    said = "feedrate: nowhere: there is no events.jsonl with steps in this folder\n"
    assert capsys.readouterr().err == said
