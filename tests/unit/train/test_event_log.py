"""Events as files: written at once, read while they grow, and from torn files."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.jobs.events import EventLog, EventTail, events_name, read_raw_events


def test_each_rank_has_its_own_file():
    assert events_name(0) == "events.jsonl"
    assert events_name(3) == "events.rank3.jsonl"


def test_an_event_is_there_as_soon_as_it_was_written(tmp_path):
    log = EventLog(tmp_path, 1)
    log.write("step", step=1, loss=math.nan)
    (event,) = read_raw_events(tmp_path / "events.rank1.jsonl")
    assert (event["event"], event["rank"], event["step"]) == ("step", 1, 1)
    assert math.isnan(event["loss"])


def test_a_tail_reads_only_what_was_added_and_never_half_a_line(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    assert tail.read() == []
    path.write_text('{"event": "a"}\n{"event": "b"')
    assert [e["event"] for e in tail.read()] == ["a"]
    with path.open("a") as stream:
        stream.write('}\n{"event": "c"}\n')
    assert [e["event"] for e in tail.read()] == ["b", "c"]
    assert tail.read() == []


def test_torn_lines_are_left_out(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "a"}\n{"event": "b", "x\n[1]\n\xff\xfe\n{"event": "c"}\n')
    assert [e["event"] for e in read_raw_events(path)] == ["a", "c"]


def test_a_full_disk_is_not_swallowed(tmp_path):
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        EventLog(tmp_path, 0).write("step")


@given(values=st.dictionaries(st.text(min_size=1), st.text() | st.integers() | st.booleans()))
def test_what_is_written_is_read(values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    values = {k: v for k, v in values.items() if k not in ("event", "rank", "self")}
    EventLog(folder, 0).write("note", **values)
    assert read_raw_events(folder / "events.jsonl") == [{"event": "note", "rank": 0, **values}]
