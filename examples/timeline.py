"""Write when a run's steps, waits and blocks were, as a trace that https://ui.perfetto.dev opens.

    .venv/bin/python examples/timeline.py runs/STUDY/DEVICE/CELL/rep1-ab12cd34 timeline.json

Each rank is a process of the trace (Chrome's Trace Event Format). Ranks are aligned by the clocks
of their hosts. Where a device works asynchronously, steps are timed by the host.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from feedrate.jobs.events import RankEvents, read_run_events

STEPS, PARTS, BLOCKS = range(1, 4)
THREADS = {STEPS: "steps", PARTS: "parts of steps", BLOCKS: "evaluation and blocks"}
Slice = tuple[int, str, float, float]
"""Thread, name, start and length; s since the training loop began."""


def slices(events: RankEvents, began_s: float) -> Iterator[Slice]:
    """The slices of a rank whose training loop began at this time, s since 1970."""
    for step in events.steps:
        start_s = step.t_s - step.step_s
        copied_s = step.copy_wait_s or 0.0
        yield STEPS, f"step {step.step}", start_s, step.step_s
        yield PARTS, "data wait", start_s, step.data_wait_s
        yield PARTS, "host to device", start_s + step.data_wait_s, copied_s
        computing_s = start_s + step.data_wait_s + copied_s
        yield PARTS, "compute", computing_s, max(0.0, step.t_s - computing_s)
    for evaluation in events.evaluations:
        length_s = evaluation.seconds or 0.0
        name = f"evaluation {evaluation.moment} training"
        yield BLOCKS, name, evaluation.at_s - began_s - length_s, length_s
    for block in events.ceilings:
        name = f"block {block.round}: {block.kind}"
        yield BLOCKS, name, block.at_s - began_s - block.wall_s, block.wall_s


def trace(run: Path) -> dict[str, object]:
    """The trace of a run's folder."""
    ranks = read_run_events(run)
    # The window is written as soon as its last step has ended.
    began_s = {rank: e.window.at_s - e.steps[-1].t_s for rank, e in ranks.items()}
    found: list[dict[str, object]] = []
    for rank, events in ranks.items():
        meta = {"ph": "M", "pid": rank}
        found.append({**meta, "name": "process_name", "args": {"name": f"rank {rank}"}})
        for thread, name in THREADS.items():
            args = {"name": name}
            found.append({**meta, "tid": thread, "name": "thread_name", "args": args})
        late_s = began_s[rank] - min(began_s.values())
        for thread, name, start_s, length_s in slices(events, began_s[rank]):
            if length_s:  # Perfetto would draw an arrow for a slice without a length
                when = {"ts": round((start_s + late_s) * 1e6, 3), "dur": round(length_s * 1e6, 3)}
                found.append({"ph": "X", "pid": rank, "tid": thread, "name": name, **when})
    return {"traceEvents": found, "displayTimeUnit": "ms"}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(trace(Path(sys.argv[1]))), encoding="utf-8")
