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

from benchmarks.figure import Figure
from feedrate.config.devices import Device
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings, TrainSettings
from feedrate.models.build import Built

ROOT = Path(__file__).parents[1]
PAGE, BEGIN, END = ROOT / "docs/memory.md", "<!-- measured -->\n", "<!-- end -->\n"
TOKENS = 77
RUNS = (
    ("vit", "tiny", 32, ""),
    ("vit", "tiny", 64, ""),
    ("vit", "tiny", 128, ""),
    ("vit", "tiny", 128, "checkpointing"),
    ("vit", "base", 1, ""),
    ("flava", "tiny", 32, ""),
    ("flava", "tiny", 64, ""),
    ("flava", "tiny", 96, ""),
    ("flava", "tiny", 96, "checkpointing"),
    ("flava", "350M", 1, ""),
    ("flava", "tiny", 64, "fsdp"),
    ("flava", "tiny", 96, "fsdp, checkpointing"),
)
"""Model, size, batch, and what differs from fp32 with eager attention in one process; `fsdp` shares
the model out over two."""
HEAP = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
"""Environment of the process. Freed memory returns to the system at once, so the resident set is
what is live. By default glibc keeps freed blocks and cannot always use them again."""
LIMIT = 0.1
HEAD = """| model | batch | | predicted, GiB | resident, GiB | error |
|---|---:|---|---:|---:|---:|
"""


def measure() -> Iterator[Figure]:
    """The error of each run, and the table in docs/memory.md."""
    lines = []
    for model, size, batch, extra in RUNS:
        predicted, resident = one_run(model, size, batch, extra)
        error, what = predicted / resident - 1, f"{model} {size}"
        shown = f"{predicted:.3f} | {resident:.3f} | {error:+.1%}"
        lines.append(f"| {what} | {batch} | {extra} | {shown} |\n")
        name = f"memory: {what}, batch {batch} {extra}"
        yield Figure(name, abs(error), LIMIT, "share", shown)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = before + BEGIN + HEAD + "".join(lines) + END + rest.partition(END)[2]
    PAGE.write_text(text, encoding="utf-8")


def one_run(model: str, size: str, batch: int, extra: str) -> tuple[float, float]:
    """The predicted peak and the measured one, GiB."""
    from feedrate.models.memory import peak_gib

    two = ["torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m"]
    start = [sys.executable, "-m", *(two if "fsdp" in extra else []), "benchmarks.memory"]
    command = [*start, model, size, str(batch), extra]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **HEAP},
        capture_output=True,
        text=True,
        check=True,
    )
    predicted = peak_gib(settings(model, size, batch, extra), cpu(extra), batch)
    return predicted, float(done.stdout.split()[-1])


def cpu(extra: str) -> Device:
    """A CPU that trains in one process, or two."""
    ranks = 2 if "fsdp" in extra else 1
    return Device(label="CPU", kind="cpu", count=ranks, capabilities=["fp32"], peaks=[])


def settings(model: str, size: str, batch: int, extra: str) -> Settings:
    """The settings of a run."""
    return Settings(
        model=ModelSettings(
            name=model,
            size=size,
            checkpointing="checkpointing" in extra,
        ),
        loader=LoaderSettings(max_tokens=TOKENS),
        train=TrainSettings(
            batch_size=batch, precision="fp32", strategy="fsdp" if "fsdp" in extra else "ddp"
        ),
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
    from feedrate.models.flops import empty_batch
    from feedrate.models.memory import stand_in

    with tempfile.TemporaryDirectory() as folder:
        built = build(asked.model, asked.loader, stand_in(Path(folder), asked.loader.label))
    if asked.train.strategy == "fsdp":
        shard(built)
    optimizer = torch.optim.AdamW(built.model.train().parameters(), foreach=False)
    for _ in range(count):
        inputs = empty_batch(built, TOKENS, asked.train.batch_size)
        inputs["pixel_values"].uniform_()
        loss = built.model(**inputs, return_loss=True)["loss"]
        del inputs
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def shard(built: Built) -> None:
    """Share out the model among the ranks by its layers, as a training job does."""
    import torch.distributed as ranks
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from feedrate.models.layers import give_shapes

    mesh = init_device_mesh("cpu", (ranks.get_world_size(),))
    give_shapes(built.model)
    for part in built.model.modules():
        if isinstance(part, built.layers):
            fully_shard(part, mesh=mesh)
    fully_shard(built.model, mesh=mesh)


if __name__ == "__main__":
    name, of_size, rows, different = sys.argv[1:]
    if "fsdp" in different:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
    grown = train(name, of_size, int(rows), different)
    if os.environ.get("RANK", "0") == "0":
        print(grown)
