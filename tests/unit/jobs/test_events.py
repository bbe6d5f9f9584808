"""Events as files: written as they happen, read while they grow, as a whole, and torn."""

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_jobs import window

from feedrate.core.errors import LogError
from feedrate.jobs.events import (
    Ceiling,
    End,
    Evaluation,
    EventLog,
    EventTail,
    Note,
    Start,
    Step,
    Trainer,
    encode,
    read_events,
    read_run_events,
)


def test_a_tail_reads_only_what_was_added_and_never_half_a_line(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = [encode(Note(rank=0, about=about)) for about in "abc"]
    tail = EventTail(path)
    assert tail.read() == []
    path.write_text(f"{lines[0]}\n{lines[1][:-1]}")
    assert [e.about for e in tail.read()] == ["a"]
    with path.open("a") as stream:
        stream.write(f"{lines[1][-1]}\n{lines[2]}\n")
    assert [e.about for e in tail.read()] == ["b", "c"]
    assert tail.read() == []


def undated(events):
    """The events without the time at which they were written, which must be now."""
    assert all(abs(event.at_s - time.time()) < 60 for event in events)
    return [msgspec.structs.replace(event, at_s=None) for event in events]


def test_torn_lines_and_unknown_events_are_left_out(tmp_path):
    path = tmp_path / "events.jsonl"
    torn = b'{"event": "note", "x\n[1]\n\xff\xfe\n{"event": "new"}\n{"event": "step"}\n'
    torn += b"[" * 5000 + b"\n"
    whole = [encode(Note(rank=0, about=about)).encode() + b"\n" for about in "ab"]
    path.write_bytes(whole[0] + torn + whole[1])
    assert [e.about for e in EventTail(path).read()] == ["a", "b"]


def test_a_full_disk_is_not_swallowed(tmp_path):
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        EventLog(tmp_path, 0).write(End(rank=0, ok=True))


@given(values=st.dictionaries(st.text(min_size=1), st.text() | st.integers() | st.booleans()))
def test_what_is_written_is_read(values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    event = Trainer(rank=0, metrics=values)
    EventLog(folder, 0).write(event)
    assert undated(EventTail(folder / "events.jsonl").read()) == [event]


LINES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [
                b'{"event": "end", "rank": 0, "ok": true}',
                b'{"event": "step", "rank": 0, "step": 1, "step_s": 0.5}',
                b'{"event": "step", "rank": 0, "step": "one"}',
                b'{"event": 3}',
                b"[" * 5000,
                b'{"event": "window", "rank": 1e999}',
                b"[]",
                b"12",
                b"",
            ]
        ),
    ),
    max_size=6,
)


def write(folder, text, name="events.jsonl"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@settings(max_examples=60, deadline=None)
@given(lines=LINES)
def test_arbitrary_bytes_give_events_or_one_clear_error(tmp_path_factory, lines):
    path = write(tmp_path_factory.mktemp("events"), b"\n".join(lines))
    message = ""
    try:
        steps = read_events(path, 0).steps
    except LogError as error:
        steps, message = [], str(error)
    assert message == "" or message.startswith(f"{path}, line ")
    assert all(step.rank == 0 for step in steps)


def test_the_events_of_a_rank_are_sorted_by_kind(tmp_path):
    log = EventLog(tmp_path, 0)
    start, trainer = Start(rank=0, world_size=1, cores_granted=8), Trainer(rank=0, library="x")
    steps = [Step(rank=0, step=number, step_s=0.5) for number in (1, 2, 3)]
    ceilings = [Ceiling(rank=0, kind=kind, samples=8, wall_s=1.0) for kind in ("loader", "model")]
    splits = [Evaluation(rank=0, moment=moment) for moment in ("before", "after")]
    for event in [start, *steps, window(), trainer, *ceilings, *splits, End(rank=0, ok=True)]:
        log.write(event)
    events = read_events(tmp_path / "events.jsonl", 0)
    assert undated([events.start, *events.steps, events.window]) == [start, *steps, window()]
    assert undated([events.trainer, *events.ceilings]) == [trainer, *ceilings]
    assert undated([*events.evaluations, events.end]) == [*splits, End(rank=0, ok=True)]
    assert (events.model, events.error, events.notes) == (None, None, [])


END = '{"event":"end","rank":0,"ok":true}\n'


@pytest.mark.parametrize(
    "text",
    [
        END + '{"event":"step","ra',  # a last line that is cut off
        '{"event":"new"}\n{"event":"end","rank":0,"ok":true,"more":1}\n',
    ],
)
def test_what_is_cut_off_or_unknown_is_passed_over(tmp_path, text):
    events = read_events(write(tmp_path, text), 0)
    assert (events.end, events.steps) == (End(rank=0, ok=True), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (END + '{"event":"st\n{"event":"x"}\n', "line 2: not an event"),
        ('{"event":"end","rank":0,"ok":"yes"}\n', r"line 1.*ok"),
        ('{"event":"end","rank":1,"ok":true}\n', "rank 1 in the file of rank 0"),
    ],
)
def test_a_wrong_line_is_an_error_that_names_it(tmp_path, text, message):
    with pytest.raises(LogError, match=message):
        read_events(write(tmp_path, text), 0)


def test_ranks_are_found_by_their_files(tmp_path):
    for rank in (0, 2, 11):
        name = "events.jsonl" if rank == 0 else f"events.rank{rank}.jsonl"
        write(tmp_path, f'{{"event":"end","rank":{rank},"ok":true}}\n', name)
    write(tmp_path, "not ours", "events.rankx.jsonl")
    assert list(read_run_events(tmp_path)) == [0, 2, 11]
    assert read_run_events(tmp_path / "nowhere") == {}
