"""`python -m feedrate timeline`: when a run's steps and blocks were, as a trace for Perfetto, in
Chrome's Trace Event Format ("JSON Object Format")."""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from feedrate.cli.display import output
from feedrate.core.errors import UsageError
from feedrate.core.files import write_text
from feedrate.core.paths import EVENTS_NAME
from feedrate.jobs.events import Ceiling, Evaluation, RankEvents, read_run_events
from feedrate.report.text import counted

Slice = dict[str, Any]
Block = Evaluation | Ceiling
STEPS, PARTS, BLOCKS, STAGES = range(1, 5)
"""Threads of a rank's process in the trace."""
THREADS = {
    STEPS: "steps",
    PARTS: "parts of steps",
    BLOCKS: "evaluation and blocks",
    STAGES: "stages of a step (means, one after another)",
}
GAP_S = 0.001
"""Longer times between two steps are shown as a pause: logging, checkpoints, trackers."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    told = "the folder of a run, with its events"
    parser.add_argument("run", metavar="RUN", type=Path, help=told)
    file, told = Path("timeline.json"), "the trace; default: %(default)s"
    parser.add_argument("--out", metavar="FILE", type=Path, default=file, help=told)


def timeline(options: argparse.Namespace) -> int:
    """Write the trace; return the exit code."""
    ranks = read_run_events(options.run)
    if not any(events.steps for events in ranks.values()):
        raise UsageError(f"{options.run}: there is no {EVENTS_NAME} with steps in this folder")
    trace = trace_of(ranks)
    write_text(options.out, json.dumps(trace))
    slices = counted(sum(event["ph"] == "X" for event in trace["traceEvents"]), "slice")
    told = f"{options.out}: {slices} of {counted(len(ranks), 'rank')}; open it in"
    output().print(f"{told} https://ui.perfetto.dev")
    return 0


def trace_of(ranks: Mapping[int, RankEvents]) -> dict[str, Any]:
    """The trace of a run, in microseconds: a process for each rank, which begins with its loop;
    aligned by the hosts' clocks, if events are dated."""
    begins = {rank: _begin_s(events) for rank, events in ranks.items()}
    first_s = min((begin for begin in begins.values() if begin is not None), default=0.0)
    found: list[Slice] = []
    for rank, events in ranks.items():
        of_rank = {"ph": "M", "pid": rank}
        found.append({**of_rank, "name": "process_name", "args": {"name": f"rank {rank}"}})
        for thread, name in THREADS.items():
            args = {"name": name}
            found.append({**of_rank, "tid": thread, "name": "thread_name", "args": args})
        late_s = (begins[rank] or first_s) - first_s
        for thread, name, start_s, length_s, told in _slices(events, begins[rank]):
            when = {"ts": round((start_s + late_s) * 1e6, 3), "dur": round(length_s * 1e6, 3)}
            what = {"ph": "X", "pid": rank, "tid": thread, "name": name}
            found.append({**what, **when, "args": told})
        for step in events.steps:
            if step.memory_gib is not None and step.t_s is not None:
                at = {"ts": round((step.t_s + late_s) * 1e6, 3), "args": {"GiB": step.memory_gib}}
                found.append({"ph": "C", "pid": rank, "name": "memory", **at})
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _begin_s(events: RankEvents) -> float | None:
    """When the loop began, s since 1970: the window is written as soon as its last step has ended.
    None if the events are not dated."""
    ended_at_s = events.window.at_s if events.window else None
    last_s = events.steps[-1].t_s if events.steps else None
    return None if ended_at_s is None or last_s is None else ended_at_s - last_s


def _slices(
    events: RankEvents, begin_s: float | None
) -> Iterator[tuple[int, str, float, float, dict[str, Any]]]:
    """Thread, name, start and length (s since the loop began) and arguments of each slice."""
    end_s = 0.0
    for step in events.steps:
        if step.t_s is None:
            continue
        start_s = step.t_s - step.step_s
        if start_s - end_s > GAP_S:
            yield STEPS, "pause", end_s, start_s - end_s, {}
        facts = {"samples": step.samples, "loss": step.loss, "warmup": step.warmup}
        yield STEPS, f"step {step.step}", start_s, step.step_s, facts
        parts = {"data wait": step.data_wait_s, "host to device": step.copy_wait_s or 0.0}
        for name, length_s in parts.items():
            if length_s:  # Perfetto would draw an arrow for each slice without a length
                yield PARTS, name, start_s, length_s, {}
            start_s += length_s
        yield PARTS, "compute", start_s, max(0.0, step.t_s - start_s), {}
        end_s = step.t_s
    blocks: list[Block] = [*events.evaluations, *events.ceilings]
    for block in sorted(blocks, key=lambda block: block.at_s or 0.0):
        name, length_s = _described(block)
        told: dict[str, Any] = {}
        if begin_s is None or block.at_s is None:  # of an earlier version
            start_s, told = end_s, {"start": "not recorded"}
        else:
            start_s = block.at_s - begin_s - length_s
        yield BLOCKS, name, start_s, length_s, told
        end_s = start_s + length_s
    if events.stages:
        for name, length_s in events.stages.seconds.items():
            yield STAGES, name, end_s, length_s, {"mean over steps": events.stages.steps}
            end_s += length_s


def _described(block: Block) -> tuple[str, float]:
    """The name and the length (s) of what ended when its event was written."""
    if isinstance(block, Evaluation):
        found = (value for name, value in block.metrics.items() if name.endswith("_runtime"))
        return f"evaluation: {block.split}", float(next(found, 0.0))
    return f"block {block.round}: {block.kind}", block.wall_s
