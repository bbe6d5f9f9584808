"""A run's folder, as a training job leaves it, with anything in it that a test wants otherwise."""

import json
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.core.files import digest_file
from tiny_spec import tiny_spec

STEP_S = 0.5
WAIT_S = 0.1


def make_spec(**changes: Any) -> RunSpec:
    """Two ranks, 3 warm-up steps of 13, batch 4 x 2 micro-steps."""
    values: dict[str, Any] = {
        "study": "loading",
        "seed": 42,
        "dataset": "generated",
        "device": "gpu",
        "kind": "cuda",
        "count": 2,
        "launcher": "torchrun",
        "cell": "workers=1",
        "levels": {"workers": 1},
        "loader": {"workers": 1},
        "train": {"gradient_accumulation": 2, "precision": "bf16"},
        "protocol": {"steps": 13, "warmup_steps": 3},
    }
    return tiny_spec(**(values | changes))


def rank_events(spec: RunSpec, rank: int, *, wall_s: float | None = None) -> list[dict[str, Any]]:
    """The events of one rank of a run that went well."""
    first, last = spec.protocol.warmup_steps + 1, spec.protocol.steps
    a_step = spec.settings.train.batch_size * spec.settings.train.gradient_accumulation
    steps = [
        {
            "event": "step",
            "step": number,
            "t_s": number * STEP_S,
            "step_s": 9.0 if number == 1 else STEP_S,
            "data_wait_s": WAIT_S,
            "samples": a_step,
            "loss": 2.0 / number,
            "memory_gib": 1.0,
            "peak_memory_gib": 2.0 + rank,
            "warmup": number < first,
        }
        for number in range(1, last + 1)
    ]
    measured = last - first + 1
    events: list[dict[str, Any]] = [
        {
            "event": "start",
            "world_size": spec.count,
            "pid": 10 + rank,
            "host": "node-a",
            "device_model": "NVIDIA H100 80GB HBM3",
            "driver": "570.1",
            "cores_granted": 8,
            "cores_of_host": 64,
            "host_memory_gib": 128.0,
            "intraop_threads": 4,
            "packages": {"torch": "2.13.0"},
            "python": "3.11.7",
            "platform": "Linux",
        },
        {
            "event": "model",
            "parameters": 1000,
            "made_on": "cpu",
            "flops_per_sample": 1e12,
            "attention": "eager",
            "precision": "bf16",
        },
        {
            "event": "data",
            "digest": "d" * 64,
            "samples": 480,
            "decode": "reference",
            "image_px": 294,
            "pixel_mean_abs_diff": 0.25,
            "pixel_psnr_db": 55.5,
        },
        *steps,
        {
            "event": "window",
            "first_step": first,
            "last_step": last,
            "steps": measured,
            "samples": measured * a_step,
            "wall_s": measured * STEP_S if wall_s is None else wall_s,
            "data_wait_s": measured * WAIT_S,
            "paused_s": 0.0,
            "memory_gib": 1.5,
            "peak_memory_gib": 2.0 + rank,
        },
        {"event": "ceiling", "kind": "loader", "samples": 100, "wall_s": 2.0},
        {"event": "ceiling", "kind": "model", "samples": 80, "wall_s": 2.0 + rank},
        {"event": "end", "ok": True},
    ]
    if rank == 0:
        events[-1:-1] = [
            {
                "event": "trainer",
                "library": "transformers 5.23.0",
                "metrics": {"train_runtime": 20.0, "train_samples_per_second": 30.5},
            }
        ]
    return [{**event, "rank": rank} for event in events]


def make_outcome(**changes: Any) -> dict[str, Any]:
    """outcome.json of a run that went well."""
    return {
        "schema": 2,
        "status": "ok",
        "infrastructure": False,
        "cause": "",
        "exit_code": 0,
        "attempt": 2,
        "command": "torchrun -m feedrate train",
        "commit": "abc",
        "source_digest": "s",
        "data_digest": "d" * 64,
        "spec_digest": "p",
        "started_at": "2026-01-01T00:00:00Z",
        "ended_at": "2026-01-01T00:01:00Z",
        "duration_s": 60.0,
        "machine_before": {"load_1min": 0.5, "other_training_jobs": 0},
        "host_peak_memory_gib": 7.5,
    } | changes


def write_run(
    folder: Path,
    *,
    spec: RunSpec | None = None,
    ranks: dict[int, list[dict[str, Any]]] | None = None,
    outcome: dict[str, Any] | None = None,
    log: str = "all is well\n",
    identity: str = "",
) -> Path:
    """Write the files of a run; by default of one that went well. `outcome={}`: none. With its
    `identity`, the outcome states the files too."""
    spec = spec or make_spec()
    ranks = {r: rank_events(spec, r) for r in range(spec.count)} if ranks is None else ranks
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(msgspec.to_builtins(spec)))
    for rank, events in ranks.items():
        name = "events.jsonl" if rank == 0 else f"events.rank{rank}.jsonl"
        (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "train.log").write_text(log)
    if outcome != {}:
        stated = outcome or make_outcome()
        if identity:
            files = {file.name: digest_file(file) for file in folder.iterdir()}
            stated |= {"identity": identity, "files": files}
        (folder / "outcome.json").write_text(json.dumps(stated))
    return folder
