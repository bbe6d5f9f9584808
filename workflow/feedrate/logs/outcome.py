"""outcome.json: how the supervisor of a job saw it end."""

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from feedrate.logs import LogError


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of docs/architecture.md; what is not named here is passed over."""

    schema: Literal[1] = 1
    status: Literal["ok", "out_of_memory", "failed"]
    infrastructure: bool = False
    cause: str | None = ""
    exit_code: int | None = None
    attempt: int | None = 1
    command: str | list[str] | None = ""
    commit: str | None = ""
    source_digest: str | None = ""
    data_digest: str | None = ""
    spec_digest: str | None = ""
    started_at: str | None = ""
    ended_at: str | None = ""
    duration_s: float | None = None
    machine_before: dict[str, Any] | None = {}
    host_peak_memory_gib: float | None = None


def read_outcome(path: Path) -> Outcome | None:
    """Read outcome.json; None where the supervisor did not live to write it. Raises LogError."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), Outcome)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}: not an outcome: {error}") from None
