"""The error of predicted memory: a training step's peak as counted, and as a CPU process has it.

Each run is a process of its own. It trains for two steps, because the states of the optimizer
appear in the first. Its resident set is compared before the model is made and at its peak.
"""

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from feedrate.config.devices import Device
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings, TrainSettings

ROOT = Path(__file__).parents[1]
PAGE, BEGIN, END = ROOT / "docs/memory.md", "<!-- measured -->\n", "<!-- end -->\n"
TOKENS = 77
RUNS = (
    ("vit", "tiny", 32, ""),
    ("vit", "tiny", 128, ""),
    ("vit", "tiny", 128, "sdpa"),
    ("vit", "tiny", 128, "checkpointing"),
    ("vit", "base", 1, ""),
    ("vit", "base", 4, ""),
    ("flava", "tiny", 32, ""),
    ("flava", "tiny", 64, ""),
    ("flava", "tiny", 128, ""),
    ("flava", "tiny", 128, "bf16"),
    ("flava", "tiny", 128, "checkpointing"),
    ("flava", "350M", 2, ""),
)
"""Model, size, batch, and what differs from fp32 with eager attention."""
HEAPS = {
    "pages": {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"},
    "default": {},
}
"""Environment of the process. pages: freed memory returns to the system at once, so that the
resident set is what is live. default: glibc keeps freed blocks and cannot always use them again."""
LIMIT = 0.1


def measure() -> Iterator[Figure]:
    """The largest error by model, and the table in docs/memory.md."""
    rows = [one_run(*run) for run in RUNS]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + table(rows) + END + after, encoding="utf-8")
    for model in dict.fromkeys(run[0] for run in RUNS):
        errors = [row["predicted"] / row["pages"] - 1 for row in rows if row["model"] == model]
        worst = max(errors, key=abs)
        note = f"{len(errors)} runs, from {min(errors):+.1%} to {max(errors):+.1%}"
        yield Figure(f"memory: {model}, error of the peak", abs(worst), LIMIT, "share", note)


def table(rows: list[dict[str, Any]]) -> str:
    """A row for each run, as Markdown."""
    lines = ["| model | batch | | predicted, GiB | resident, GiB | error | with glibc's heap, GiB | error |"]
    lines.append("|---|---:|---|---:|---:|---:|---:|---:|")
    for row in rows:
        found = row["predicted"]
        errors = {heap: f"{row[heap]:.3f} | {found / row[heap] - 1:+.1%}" for heap in HEAPS}
        lines.append(
            f"| {row['model']} {row['size']} | {row['batch']} | {row['extra']} | {found:.3f} | "
            f"{errors['pages']} | {errors['default']} |"
        )
    return "\n".join([*lines, ""])


def one_run(model: str, size: str, batch: int, extra: str) -> dict[str, Any]:
    """The predicted peak and the measured ones, GiB."""
    from feedrate.models.memory import peak_gib

    found: dict[str, Any] = {"model": model, "size": size, "batch": batch, "extra": extra}
    found["predicted"] = peak_gib(settings(model, size, batch, extra), cpu(), batch)
    for heap, environment in HEAPS.items():
        command = [sys.executable, "-m", "benchmarks.memory", model, size, str(batch), extra]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        found[heap] = float(done.stdout.split()[-1])
    return found


def cpu() -> Device:
    """A CPU that trains in one process."""
    return Device(label="CPU", kind="cpu", capabilities=["fp32"], peaks=[])


def settings(model: str, size: str, batch: int, extra: str) -> Settings:
    """The settings of a run."""
    return Settings(
        model=ModelSettings(
            name=model,
            size=size,
            attention="sdpa" if extra == "sdpa" else "eager",
            checkpointing=extra == "checkpointing",
        ),
        loader=LoaderSettings(max_tokens=TOKENS),
        train=TrainSettings(batch_size=batch, precision="bf16" if extra == "bf16" else "fp32"),
    )


def train(model: str, size: str, batch: int, extra: str) -> float:
    """Two steps; the growth of this process's resident set, GiB.

    Before, one step of the smallest model loads the code of all libraries.
    """
    from feedrate.devices.base import adapter

    device = adapter("cpu", 0, 1)
    steps(settings(model, "tiny", 2, extra), 1)
    gc.collect()
    device.reset_peak()
    before = device.memory().now_gib or 0.0
    steps(settings(model, size, batch, extra), 2)
    return (device.memory().peak_gib or 0.0) - before


def steps(asked: Settings, count: int) -> None:
    """Train for some steps with AdamW, parameter by parameter."""
    import torch

    from feedrate.models.build import build
    from feedrate.models.memory import stand_in
    from feedrate.models.meta import empty_batch

    with tempfile.TemporaryDirectory() as folder:
        built = build(asked.model, asked.loader, stand_in(Path(folder), asked.loader.label))
    optimizer = torch.optim.AdamW(built.model.train().parameters(), foreach=False)
    for _ in range(count):
        inputs = empty_batch(built, TOKENS, asked.train.batch_size)
        inputs["pixel_values"].uniform_()
        with torch.autocast("cpu", torch.bfloat16, enabled=asked.train.precision == "bf16"):
            loss = built.model(**inputs, return_loss=True)["loss"]
        del inputs
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    name, of_size, rows, different = sys.argv[1:]
    print(train(name, of_size, int(rows), different))
