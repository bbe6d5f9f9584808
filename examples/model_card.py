"""Write a model card from a run's record: python examples/model_card.py RUN_FOLDER > README.md

It says where the model comes from, how fast it was trained, and what it scored before and after.
"""

import json
import sys
from pathlib import Path
from typing import Any

RATES = {
    "samples_per_s": "samples/s",
    "step_time_median_s": "s for a step (median)",
    "peak_memory_gib": "GiB at the peak, a device",
    "mfu": "of the peak FLOP/s (MFU)",
}


def card(record: dict[str, Any]) -> str:
    """The card of a run, in Markdown with the hub's metadata."""
    settings, made = record["spec"]["settings"], record["provenance"]
    model, measured = settings["model"], record["measurement"] or {}
    start = model["checkpoint"] or "random weights"
    head = {"library_name": "transformers", "tags": ["feedrate", model["name"]]}
    if model["checkpoint"]:
        head["base_model"] = model["checkpoint"]
    train = ", ".join(f"{key}: {value}" for key, value in settings["train"].items() if value)
    facts = [
        f"- Started from {start}, trained on the dataset `{record['spec']['dataset']}`",
        f"- Settings: {train}, seed: {record['spec']['seed']}",
        f"- Device: {made['device_model']} ({record['device']})",
        f"- Made by feedrate at commit `{made['commit']}`, {made['started_at']}",
    ]
    rates = [f"- {measured[key]:.4g} {unit}" for key, unit in RATES.items() if measured.get(key)]
    rows = [
        f"| {one['on']} | {one['metric']} | {percent(one['before'])} | {percent(one['after'])} | "
        f"{percent(one['chance'])} | {one['n']} |"
        for one in record["scores"]
    ]
    table = ["| data | score | before | after | by chance | answers |", "|---|---|---|---|---|---|"]
    sections = {
        f"{model['name']} {model['size']}, {record['study']}": facts,
        "Throughput": rates or ["Not measured."],
        "Scores": [*table, *rows] if rows else ["Not evaluated."],
    }
    parts = [f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items()]
    metadata = "\n".join(f"{key}: {json.dumps(value)}" for key, value in head.items())
    return f"---\n{metadata}\n---\n\n" + "\n\n".join(parts) + "\n"


def percent(share: float | None) -> str:
    """A share in per cent."""
    return "" if share is None else f"{100 * share:.1f}%"


if __name__ == "__main__":
    run = Path(sys.argv[1])  # runs/STUDY/DEVICE/CELL/rep1-ab12cd34
    records = Path("results", *run.parts[1:3], "records.jsonl").read_text(encoding="utf-8")
    (record,) = (one for one in map(json.loads, records.splitlines()) if one["folder"] == str(run))
    print(card(record), end="")
