"""The events of a run: one JSON object a line, one file a rank; docs/run-files.md has the keys."""

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from feedrate.core.errors import LogError
from feedrate.core.paths import events_name

Status = Literal["ok", "out_of_memory", "failed"]
NOT_TRIED = "Not tried: "  # begins the cause of a pruned cell, which prunes no other cell


class Result(NamedTuple):
    """The essence of an outcome; the `cause` of an ok job is a remark, mostly empty."""

    status: Status
    cause: str


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """What all events share; a default means that a value is unknown. `at_s`: Unix time, s."""

    rank: int
    at_s: float | None = None


class Start(Event, frozen=True, kw_only=True, tag="start"):
    """The process runs, on this host and device."""

    world_size: int
    pid: int | None = None
    host: str | None = None
    device_model: str | None = None
    driver: str | None = None
    device_memory_gib: float | None = None
    cores_granted: int | None = None
    cores: str | None = None
    cores_of_host: int | None = None
    host_memory_gib: float | None = None
    bf16_instructions: list[str] | None = None
    intraop_threads: int | None = None
    packages: dict[str, str] = {}
    firmware: dict[str, str] = {}
    python: str | None = None
    platform: str | None = None
    environment: dict[str, str] = {}


class Model(Event, frozen=True, kw_only=True, tag="model"):
    """The model is built. `flops_per_real_sample` leaves out the texts' padding; `made_on` is the
    type of the device where random weights were drawn, or a checkpoint's read."""

    made_on: str | None = None
    parameters: int | None = None
    flops_per_sample: float | None = None
    flops_per_real_sample: float | None = None
    attention: str | None = None


class Data(Event, frozen=True, kw_only=True, tag="data"):
    """The dataset is open; `decode` is the decode path that is used."""

    digest: str | None = None
    samples: int | None = None
    decode: str | None = None
    library: str | None = None
    form: str | None = None
    pixel_mean_abs_diff: float | None = None
    pixel_psnr_db: float | None = None
    pixel_worst_abs_diff: float | None = None


class Step(Event, frozen=True, kw_only=True, tag="step"):
    """One optimizer step or forward pass, numbered from 1; samples are of this rank."""

    step: int
    starts_epoch: bool = False
    t_s: float | None = None
    step_s: float
    data_wait_s: float = 0.0
    copy_wait_s: float | None = None
    samples: int | None = None
    loss: float | None = None
    loss_scale: float | None = None
    finite: bool | None = None
    memory_gib: float | None = None
    peak_memory_gib: float | None = None
    warmup: bool = False


class Window(Event, frozen=True, kw_only=True, tag="window"):
    """The timed window of this rank; the device is synchronised at both ends."""

    first_step: int
    last_step: int
    steps: int
    samples: int
    wall_s: float
    data_wait_s: float = 0.0
    copy_wait_s: float | None = None
    paused_s: float = 0.0
    memory_gib: float | None = None
    peak_memory_gib: float | None = None
    reserved_memory_gib: float | None = None
    allocator_retries: int | None = None
    energy_j: float | None = None


class Program(msgspec.Struct, frozen=True):
    """A program that is no part of the job, with its CPU time in the window."""

    name: str
    pid: int  # the number of its process; 0: several
    cpu_s: float


class Machine(Event, frozen=True, kw_only=True, tag="machine"):
    """The machine at one end of the window, read outside of it: what may slow this rank."""

    device: dict[str, Any] = {}
    host: dict[str, float] = {}
    cores: str | None = None
    programs: list[Program] = []


class Strategy(Event, frozen=True, kw_only=True, tag="strategy"):
    """How the ranks share the work, read from the wrapped model."""

    name: str
    layers: int = 0
    sharded_layers: int = 0
    offloaded_layers: int = 0
    checkpointed_layers: int = 0
    ddp: dict[str, float | bool] | None = None
    fp32: str | None = None
    reduce_dtype: str | None = None


class Computation(Event, frozen=True, kw_only=True, tag="computation"):
    """The computation of the steps, read after the last of them."""

    precision: str | None = None
    optimizer: str = ""
    compiled_graphs: int = 0
    recorded_graphs: bool | None = None
    replayed_passes: int | None = None
    missed_passes: int | None = None
    weights: str = ""


class Trainer(Event, frozen=True, kw_only=True, tag="trainer"):
    """The metrics that `Trainer.train` returned."""

    library: str = ""
    metrics: dict[str, Any] = {}


class Ceiling(Event, frozen=True, kw_only=True, tag="ceiling"):
    """One block of steps after the window: `live`, as in the window, or of one part alone."""

    kind: str
    round: int = 0
    samples: int
    wall_s: float


class Stages(Event, frozen=True, kw_only=True, tag="stages"):
    """Seconds of each stage per optimizer step of this rank, from `live` blocks of `steps` steps; a
    stage of the loader is the sum over its processes. `spans`: see `Recorder.spans`."""

    steps: int
    seconds: dict[str, float] = {}
    spans: dict[str, dict[str, Any]] = {}
    not_split: list[str] = []
    forward_memory_gib: float | None = None


class Note(Event, frozen=True, kw_only=True, tag="note"):
    """A remark that invalidates no result: a ceiling that failed, or what a `trace` has."""

    about: str = ""
    type: str = ""
    message: str = ""
    out_of_memory: bool = False


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One score of a model: of each image of `on` (validation, test, or an example of winoground),
    how many of its `of` answers are right, and the share that chance gives."""

    on: str
    metric: str
    right: list[int]
    of: list[int]
    chance: float | None = None


class Evaluation(Event, frozen=True, kw_only=True, tag="evaluation"):
    """The scores before or after training. `winoground`: which copy; `seconds`: what it took."""

    moment: Literal["before", "after"] = "after"
    scores: list[Score] = []
    winoground: str = ""
    seconds: float | None = None


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """An exception ended this rank; `infrastructure`: the machine's fault; `type`: "" if ours."""

    type: str = ""
    message: str = ""
    out_of_memory: bool = False
    infrastructure: bool = False
    traceback: str = ""


class End(Event, frozen=True, kw_only=True, tag="end"):
    """The last event of a rank."""

    ok: bool


_ENCODER = json.JSONEncoder(ensure_ascii=False)
_KINDS = {str(kind.__struct_config__.tag): kind for kind in Event.__subclasses__()}


class EventLog:
    """Appends one rank's events; each has reached the kernel when `write` returns."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self._stream = (folder / events_name(rank)).open("a", encoding="utf-8")

    def write(self, event: Event) -> None:
        """Write one event. Raises OSError if the disk is full."""
        dated = msgspec.structs.replace(event, at_s=round(time.time(), 6))
        self._stream.write(encode(dated) + "\n")
        self._stream.flush()  # a rank that is killed keeps its events


def encode(event: Event) -> str:
    """The line of an event, with NaN and not msgspec's null: a check rejects a loss that is NaN."""
    return _ENCODER.encode(msgspec.to_builtins(event))


def decode(line: str | bytes) -> Event | None:
    """The event of a line; None if its name is unknown. Raises ValueError if it is no event."""
    value = json.loads(line)
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        raise ValueError("not an object with a string under `event`")
    kind = _KINDS.get(value["event"])
    return None if kind is None else msgspec.convert(value, kind)


class RankEvents(msgspec.Struct, kw_only=True):
    """The events of one rank by kind; the last event of a kind that occurs once."""

    start: Start | None = None
    model: Model | None = None
    data: Data | None = None
    steps: list[Step] = []
    window: Window | None = None
    machines: list[Machine] = []  # at the beginning and at the end of the window
    strategy: Strategy | None = None
    computation: Computation | None = None
    trainer: Trainer | None = None
    ceilings: list[Ceiling] = []
    stages: Stages | None = None
    notes: list[Note] = []
    evaluations: list[Evaluation] = []
    error: Error | None = None
    end: End | None = None

    def add(self, event: Event) -> None:
        """Add one event under its kind."""
        name = str(event.__struct_config__.tag)
        if isinstance(event, Step | Ceiling | Note | Evaluation | Machine):
            getattr(self, f"{name}s").append(event)
        else:
            setattr(self, name, event)


def read_run_events(run_dir: Path) -> dict[int, RankEvents]:
    """The events of all ranks of a run, by rank. Raises LogError."""
    ranks = {}
    for path in run_dir.glob("events*.jsonl"):
        if match := re.fullmatch(r"events(?:\.rank(\d{1,6}))?\.jsonl", path.name):
            rank = int(match[1] or 0)
            ranks[rank] = read_events(path, rank)
    return dict(sorted(ranks.items()))


def read_events(path: Path, rank: int) -> RankEvents:
    """One rank's events. Raises LogError, but not for a last line that is cut off."""
    events = RankEvents()
    lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            event = decode(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            raise LogError(f"{path}, line {number}: not an event: {error}") from None
        if event and event.rank != rank:
            raise LogError(f"{path}, line {number}: rank {event.rank} in the file of rank {rank}")
        if event:
            events.add(event)
    return events


class EventTail:
    """Reads a file of events while it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self) -> list[Event]:
        """The events of complete lines since the last call; none while there is no file."""
        added = b""
        with suppress(OSError), self._path.open("rb") as stream:
            stream.seek(self._offset)
            added = stream.read()
        complete = added[: added.rfind(b"\n") + 1]
        self._offset += len(complete)
        events = []
        for line in complete.splitlines():
            with suppress(ValueError, RecursionError):
                if event := decode(line):
                    events.append(event)
        return events
