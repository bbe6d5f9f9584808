"""Our own events: one JSON object a line, one file a rank (docs/architecture.md names the keys)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from feedrate.core.errors import LogError
from feedrate.core.paths import events_name


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """What all events have. A key that is not named here is passed over."""

    rank: int


class Start(Event, frozen=True, kw_only=True, tag="start"):
    """The process is up."""

    world_size: int
    pid: int | None = None
    host: str | None = None
    device_model: str | None = None
    driver: str | None = None
    cores_granted: int | None = None
    cores_of_host: int | None = None
    host_memory_gib: float | None = None
    bf16_instructions: list[str] | None = None
    intraop_threads: int | None = None
    packages: dict[str, str] = {}
    python: str | None = None
    platform: str | None = None


class Model(Event, frozen=True, kw_only=True, tag="model"):
    """The model is built."""

    parameters: int | None = None
    flops_per_sample: float | None = None
    attention: str | None = None
    precision: str | None = None


class Data(Event, frozen=True, kw_only=True, tag="data"):
    """The data is open; `decode` is the path really taken."""

    digest: str | None = None
    samples: int | None = None
    decode: str | None = None
    pixel_mean_abs_diff: float | None = None
    pixel_psnr_db: float | None = None
    image_px: int | None = None
    max_tokens: int | None = None


class Step(Event, frozen=True, kw_only=True, tag="step"):
    """One optimizer step, or forward pass, numbered from 1; samples are this rank's."""

    step: int
    t_s: float | None = None
    step_s: float
    data_wait_s: float = 0.0
    samples: int | None = None
    loss: float | None = None
    finite: bool | None = None
    memory_gib: float | None = None
    peak_memory_gib: float | None = None
    warmup: bool = False


class Window(Event, frozen=True, kw_only=True, tag="window"):
    """The timed window of this rank, the device synchronised at both ends."""

    first_step: int
    last_step: int
    steps: int
    samples: int
    wall_s: float
    data_wait_s: float = 0.0
    paused_s: float = 0.0
    memory_gib: float | None = None
    peak_memory_gib: float | None = None
    allocator_retries: int | None = None
    energy_j: float | None = None


class Strategy(Event, frozen=True, kw_only=True, tag="strategy"):
    """How the ranks really shared their work, read from the wrapped model."""

    name: str
    layers: int = 0
    sharded_layers: int = 0
    offloaded_layers: int = 0
    checkpointed_layers: int = 0
    ddp: dict[str, float | bool] | None = None
    fp32: str | None = None


class Trainer(Event, frozen=True, kw_only=True, tag="trainer"):
    """What `Trainer.train` returned."""

    library: str = ""
    metrics: dict[str, Any] = {}


class Ceiling(Event, frozen=True, kw_only=True, tag="ceiling"):
    """The loader with no model, the model with no loader, or the gradients' exchange alone."""

    kind: str
    samples: int
    wall_s: float


class Evaluation(Event, frozen=True, kw_only=True, tag="evaluation"):
    """What evaluate or predict returned."""

    split: str
    metrics: dict[str, Any] = {}


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """An exception ended this rank."""

    type: str = ""
    message: str = ""
    out_of_memory: bool = False
    traceback: str = ""


class End(Event, frozen=True, kw_only=True, tag="end"):
    """The last word of a rank."""

    ok: bool


AnyEvent = (
    Start | Model | Data | Step | Window | Strategy | Trainer | Ceiling | Evaluation | Error | End
)
_KINDS: dict[str, type[Event]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyEvent)
}


class RankEvents(msgspec.Struct, kw_only=True):
    """The events of one rank; of an event that comes once, the last."""

    start: Start | None = None
    model: Model | None = None
    data: Data | None = None
    steps: list[Step] = []
    window: Window | None = None
    strategy: Strategy | None = None
    trainer: Trainer | None = None
    ceilings: list[Ceiling] = []
    evaluations: list[Evaluation] = []
    error: Error | None = None
    end: End | None = None

    def add(self, event: AnyEvent) -> None:
        """Sort one event in."""
        if isinstance(event, Step):
            self.steps.append(event)
        elif isinstance(event, Ceiling):
            self.ceilings.append(event)
        elif isinstance(event, Evaluation):
            self.evaluations.append(event)
        else:
            setattr(self, str(event.__struct_config__.tag), event)


def read_run_events(run_dir: Path) -> dict[int, RankEvents]:
    """The events of all ranks of a run, by rank. Raises LogError."""
    first = run_dir / events_name(0)
    files = {0: first} if first.is_file() else {}
    for path in run_dir.glob(f"{first.stem}.rank*{first.suffix}"):
        match = re.fullmatch(r".*\.rank(\d{1,6})\.[a-z]+", path.name)
        if match:
            files[int(match[1])] = path
    return {rank: read_events(path, rank) for rank, path in sorted(files.items())}


def read_events(path: Path, rank: int) -> RankEvents:
    """Read one rank's events.

    A last line that was cut off is left out, and so are events of unknown names. Where a file
    holds several attempts, the last counts. Raises LogError for any other line that is not an
    event of the contract, and for one of another rank.
    """
    events = RankEvents()
    *lines, tail = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    for position, line in enumerate([*lines, tail], start=1):
        if not line.strip():
            continue
        try:
            event = parse_event(line)
        except (ValueError, RecursionError) as error:
            if position > len(lines):
                break
            raise LogError(f"{path}, line {position}: not an event: {error}") from None
        if event is None:
            continue
        if event.rank != rank:
            raise LogError(f"{path}, line {position}: rank {event.rank} in the file of rank {rank}")
        if isinstance(event, Start):
            events = RankEvents()
        events.add(event)
    return events


def parse_event(line: str) -> AnyEvent | None:
    """One line as an event; None for a name that is not known.

    Raises ValueError (msgspec.ValidationError is one) where it is none. NaN is accepted: a loss
    that is not finite must reach the check that rejects it.
    """
    value = json.loads(line)
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        raise ValueError("no object with a name under `event`")
    kind = _KINDS.get(value["event"])
    return None if kind is None else msgspec.convert(value, kind)  # type: ignore[return-value]


# A run's events: one JSON object a line, written as they happen, read even from a torn file.

RawEvent = dict[str, Any]


class EventLog:
    """Appends one rank's events; each is in the kernel's hands when `write` returns.

    A loss that is not a number is written as NaN (which JSON proper lacks and Python reads).
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self._stream = (folder / events_name(rank)).open("a", encoding="utf-8")

    def write(self, event: str, **values: Any) -> None:
        """Write one event. Raises OSError where the disk is full."""
        line = json.dumps({"event": event, "rank": self.rank, **values}, ensure_ascii=False)
        self._stream.write(line + "\n")
        self._stream.flush()


class EventTail:
    """Reads what has been added to an events file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[RawEvent]:
        """Complete events added since the last call; none while there is no file."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                added = stream.read()
        except OSError:
            return []
        whole = added.rfind(b"\n") + 1
        self._offset += whole
        return list(_parse_raw(added[:whole]))


def read_raw_events(path: Path) -> list[RawEvent]:
    """All complete events of a file; none where it is missing."""
    return EventTail(path).read()


def _parse_raw(text: bytes) -> Iterator[RawEvent]:
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # torn by a full disk or a kill
            continue
        if isinstance(event, dict):
            yield event
