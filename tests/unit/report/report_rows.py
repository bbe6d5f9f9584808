"""Rows of result files, and files of runs, for the tests of the report."""

import json

from feedrate.core import paths
from feedrate.results.record import Record, Score
from feedrate.results.schema import Provenance

STUDY = "loading"
RATES = {0: 11.2, 1: 14.1, 2: 14.3, 16: 12.6}
EVIL = "<script>alert('1')</script> & {{ 7 * 7 }}"
"""A text that pages must show as it is."""


def scores_of(spec):
    """The scores of a run, on both splits and on Winoground."""
    figures = [
        *((on, "matching_accuracy", 0.2) for on in ("validation", "test")),
        *(("winoground", f"{name}_score", 0.25) for name in ("text", "image")),
        ("winoground", "group_score", 1 / 6),
    ]
    return [
        Score(
            on=on,
            metric=metric,
            before=chance + 0.01 * spec.repeat,
            after=chance + 0.3 + 0.01 * spec.repeat,
            gain_low=0.2,
            gain_high=0.4,
            n=100,
            chance=chance,
        )
        for on, metric, chance in figures
    ]


def status_of(bad, spec):
    return bad.get((spec.device, spec.levels["workers"]), "ok")


def run_row(spec, status, cause):
    rate = RATES[spec.levels["workers"]] * (1 + 0.01 * (spec.repeat - 2))
    batch = spec.settings.train.batch_size * spec.count
    steps = spec.protocol.steps - spec.protocol.warmup_steps
    row = {
        "study": spec.study,
        "device": spec.device,
        "cell": spec.cell,
        **spec.levels,
        "repeat": spec.repeat,
        "status": status,
        "folder": folder_of(spec),
        "commit": "84b8b64",
        "device_model": "A processor of 2 cores",
        "host": "node7",
        "cores_granted": 2,
        "library": "transformers 5.23.0",
        "dataset": "generated",
        "world_size": spec.count,
        "batch_size": spec.settings.train.batch_size,
        "model": f"bridgetower-{spec.settings.model.size}",
        "checkpoint": "none",
        "precision": spec.settings.train.precision,
        "parallelism": "ddp",
        "data_digest": "fedcba9876543210",
        "attempt": 1,
        "started_at": f"2026-11-21T09:{spec.repeat:02}:00Z",
        "duration_s": 41.5,
    }
    if status != "ok":
        return row | {"cause": cause}
    return row | {
        "samples_per_s": rate,
        "step_time_median_s": batch / rate,
        "step_time_p95_s": 1.2 * batch / rate,
        "step_time_p99_s": 1.4 * batch / rate,
        "data_wait_share": 0.24 if spec.levels["workers"] == 0 else 0.006,
        "loader_samples_per_s": 40.0 * max(1, min(2, spec.levels["workers"])),
        "model_samples_per_s": 14.8,
        "evaluation_s": 20.0,
        "steps": steps,
        "warmup_steps": spec.protocol.warmup_steps,
        "wall_s": steps * batch / rate,
        "trainer_samples_per_s": rate * 0.97,
    }


def cell_row(runs, recommended):
    good = [run for run in runs if run["status"] == "ok"]
    first = runs[0]
    row = {key: first[key] for key in ("study", "device", "cell", "workers", "decode")} | {
        "measured_as": first.get("measured_as", ""),
        "runs": len(runs),
        "ok_runs": len(good),
        "recommended": False,
        "noisy": False,
    }
    if not good:
        return row | {"status": first["status"], "cause": first["cause"]}
    rates = sorted(run["samples_per_s"] for run in good)
    middle = rates[len(rates) // 2]
    input_bound = good[0]["data_wait_share"] > 0.1
    chosen = first["workers"] == recommended
    return row | {
        "status": "ok",
        "samples_per_s": middle,
        "ci_low": rates[0],
        "ci_high": rates[-1],
        "spread": (rates[-1] - rates[0]) / middle,
        "noisy": first["workers"] == 16,
        "step_time_median_s": good[0]["step_time_median_s"],
        "step_time_p95_s": good[0]["step_time_p95_s"],
        "step_time_p99_s": good[0]["step_time_p99_s"],
        "data_wait_share": good[0]["data_wait_share"],
        "batch_size": 8,
        "world_size": 1,
        "peak_memory_gib": 1.21,
        "trainer_samples_per_s": middle * 0.97,
        "loader_samples_per_s": good[0]["loader_samples_per_s"],
        "model_samples_per_s": good[0]["model_samples_per_s"],
        **{
            f"{part}_ratio{end}": factor * good[0][f"{part}_samples_per_s"] / middle
            for part in ("loader", "model")
            for end, factor in (("", 1.0), ("_low", 0.99), ("_high", 1.01))
        },
        "below_rate": "",
        "cores_granted": 2,
        "speedup": middle / RATES[0],
        "speedup_ci_low": 0.98 * middle / RATES[0],
        "speedup_ci_high": 1.02 * middle / RATES[0],
        "verdict": "input-bound" if input_bound else "compute-bound",
        "why": "24.0% of the time is spent waiting for batches.",
        "recommended": chosen,
        "recommendation": "Use 1 worker a rank: 14.1 samples/s, within noise of the best."
        if chosen
        else "",
    }


def record_of(spec):
    return Record(
        study=spec.study,
        device=spec.device,
        cell=spec.cell,
        levels=spec.levels,
        repeat=spec.repeat,
        folder=folder_of(spec),
        status="ok",
        spec=spec,
        model_parameters=3_812_097,
        scores=scores_of(spec),
        winoground="generated",
        provenance=Provenance(
            commit="84b8b64",
            source_digest="0123456789abcdef",
            command="python -m feedrate train --spec spec.json",
            driver="",
            cores_granted=2,
            cores_of_host=8,
            intraop_threads=2,
            host_memory_gib=15.6,
            machine_before={"load_1min": 0.2, "cpu_governor": ""},
            packages={"torch": "2.13.0", "transformers": "5.23.0"},
            python="3.11.2",
            platform="Linux",
        ),
    )


def folder_of(spec):
    where = {name: getattr(spec, name) for name in ("study", "device", "cell", "repeat")}
    return paths.RUN.format(**where, identity="0a1b2c3d")


def write_events(root, spec):
    lines = [{"event": "start", "rank": 0, "world_size": 1}]
    for step in range(1, spec.protocol.steps + 1):
        warm = step <= spec.protocol.warmup_steps
        lines.append(
            {
                "event": "step",
                "rank": 0,
                "step": step,
                "step_s": 3.1 if step == 1 else 0.6 + 0.05 * (step % 3),
                "data_wait_s": 0.1,
                "samples": 8,
                "loss": 2.5 / (1 + 0.05 * step),
                "warmup": warm,
            }
        )
    target = root / folder_of(spec) / paths.EVENTS_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(line) + "\n" for line in lines))


def unsupported_rows(plan):
    return [
        {
            "study": u.study,
            "device": u.device,
            "cell": u.cell,
            **u.levels,
            "status": "unsupported",
            "cause": f"The device lacks {u.lacks}.",
            "recommended": False,
            "noisy": False,
        }
        for u in plan.unsupported
    ]


CLAIMS = [
    {
        "claim": "workers-h100",
        "of": "source",
        "device": "h100",
        "statement": "2 workers against none on H100",
        "expression": "h100[workers=2] / h100[workers=0]",
        "published_value": 1.79,
        "recomputed_from_published": 1.789,
        "published_verdict": "consistent",
        "verdict": "no data here",
        "why": "h100 was not measured.",
    },
    {
        "claim": "workers-help",
        "of": "ours",
        "device": "cpu",
        "statement": f"2 workers are no slower than none {EVIL}",
        "expression": "*[workers=2] / *[workers=0]",
        "metric": "tflops_per_device",
        "cells": "cpu/workers=2~decode=host;cpu/workers=0~decode=host",
        "measured": 1.277,
        "ci_low": 1.25,
        "ci_high": 1.3,
        "verdict": "holds",
        "why": "1.28 is at least 1.",
    },
]


DATA_REPORT = {
    "schema": 1,
    "dataset": "generated",
    "source": "generated",
    "revision": "seed 20",
    "samples": 598,
    "splits": {"train": {"rows": 480, "images": 480}, "test": {"rows": 118, "images": 60}},
    "images": 540,
    "width_px": {"min": 600, "p5": 640, "median": 900, "mean": 894.2, "p95": 1180, "max": 1200},
    "kilobytes": {"min": 21, "p5": 30, "median": 88, "mean": 91, "p95": 150, "max": 180},
    "modes": {"L": 360, "RGB": 180},
    "formats": {"JPEG": 540},
    "converted": {"grey to RGB": 360},
    "changed_since_fetch": [],
    "rows_left_out": 2,
    "left_out": [{"path": f"images/{EVIL}.jpg", "reason": "truncated", "rows": 2}],
}
