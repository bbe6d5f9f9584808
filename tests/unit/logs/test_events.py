import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_folder import make_spec, rank_events

from feedrate.core.errors import LogError
from feedrate.jobs.events import Step, parse_event, read_events, read_run_events

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


FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e6)


@settings(max_examples=50, deadline=None)
@given(
    event=st.builds(
        Step,
        rank=st.integers(0, 100),
        step=st.integers(1, 10**9),
        step_s=FINITE,
        data_wait_s=FINITE,
        loss=st.none() | FINITE,
        warmup=st.booleans(),
    )
)
def test_an_event_survives_the_round_trip(event):
    assert parse_event(json.dumps(msgspec.to_builtins(event))) == event


def test_all_events_of_a_run_are_sorted_by_kind(tmp_path):
    spec = make_spec()
    write(tmp_path, "\n".join(map(json.dumps, rank_events(spec, 0))) + "\n")
    events = read_events(tmp_path / "events.jsonl", 0)
    assert events.start is not None
    assert events.start.cores_granted == 8
    assert len(events.steps) == 13
    assert events.window is not None
    assert events.window.samples == 80
    assert [c.kind for c in events.ceilings] == ["loader", "model"]
    assert events.trainer is not None
    assert len(events.evaluations) == 2
    assert events.end is not None


def test_a_torn_last_line_is_left_out(tmp_path):
    path = write(tmp_path, '{"event":"end","rank":0,"ok":true}\n{"event":"step","ra')
    assert read_events(path, 0).end is not None
    assert read_events(path, 0).steps == []


def test_a_torn_line_in_the_middle_is_an_error_that_names_its_line(tmp_path):
    path = write(tmp_path, '{"event":"end","rank":0,"ok":true}\n{"event":"st\n{"event":"x"}\n')
    with pytest.raises(LogError, match="line 2: not an event"):
        read_events(path, 0)


def test_a_wrong_type_is_an_error_that_names_the_key(tmp_path):
    path = write(tmp_path, '{"event":"end","rank":0,"ok":"yes"}\n')
    with pytest.raises(LogError, match=r"line 1.*ok"):
        read_events(path, 0)


def test_an_event_of_another_rank_is_an_error(tmp_path):
    path = write(tmp_path, '{"event":"end","rank":1,"ok":true}\n')
    with pytest.raises(LogError, match="rank 1 in the file of rank 0"):
        read_events(path, 0)


def test_unknown_events_and_keys_are_passed_over(tmp_path):
    path = write(tmp_path, '{"event":"new"}\n{"event":"end","rank":0,"ok":true,"more":1}\n')
    assert read_events(path, 0).end is not None


def test_of_several_attempts_the_last_counts(tmp_path):
    start = '{"event":"start","rank":0,"world_size":1}\n'
    step = '{"event":"step","rank":0,"step":1,"step_s":%s}\n'
    path = write(tmp_path, start + step % 1 + start + step % 2)
    assert [s.step_s for s in read_events(path, 0).steps] == [2]


def test_a_loss_that_is_not_finite_is_read(tmp_path):
    path = write(tmp_path, '{"event":"step","rank":0,"step":1,"step_s":1.0,"loss":NaN}\n')
    loss = read_events(path, 0).steps[0].loss
    assert loss is not None
    assert loss != loss


def test_ranks_are_found_by_their_files(tmp_path):
    for rank in (0, 2, 11):
        name = "events.jsonl" if rank == 0 else f"events.rank{rank}.jsonl"
        write(tmp_path, f'{{"event":"end","rank":{rank},"ok":true}}\n', name)
    write(tmp_path, "not ours", "events.rankx.jsonl")
    assert list(read_run_events(tmp_path)) == [0, 2, 11]
    assert read_run_events(tmp_path / "nowhere") == {}
