"""Runs that kept a model, without the training: the weights are those of a seed."""

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from transformers import set_seed

from feedrate.config.spec import RunSpec
from feedrate.models.build import build
from tiny_spec import tiny_spec

SEED = 7


def make_spec(name="bridgetower", precision="fp32", **loader) -> RunSpec:
    return tiny_spec(
        seed=SEED,
        model={"name": name},
        loader=loader,
        train={"precision": precision},
        protocol={"steps": 2, "save_checkpoints": True},
    )


def keep_model(spec: RunSpec, prepared: Path, run: Path, seed: int = SEED) -> Path:
    """The folder `model` of a run that ended well, with weights of `seed`."""
    set_seed(seed)
    built = build(spec.settings.model, spec.settings.loader, prepared)
    folder = run / "trainer/model"
    built.model.save_pretrained(folder)
    built.tokenizer.save_pretrained(folder)
    end(run, "ok")
    return folder


def end(run: Path, status: str, cause: str = "") -> Path:
    """The run's outcome."""
    run.mkdir(parents=True, exist_ok=True)
    (run / "outcome.json").write_text(json.dumps({"status": status, "cause": cause}))
    return run / "outcome.json"


def with_choices(prepared: Path, *, choices: int = 5) -> None:
    """Give every row as many captions to choose from, the first being right."""
    table = pq.read_table(prepared / "samples.parquet")
    rows = [
        {
            **row,
            "caption_choices": [row["caption"], *(f"king {n}" for n in range(choices - 1))],
            "label": "A",
        }
        for row in table.to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(rows), prepared / "samples.parquet")


def arguments(spec: RunSpec, prepared: Path, run: Path) -> list[str]:
    """The command line of `python -m feedrate score`."""
    return [
        *("--spec", repr(msgspec.to_builtins(spec)), "--outcome", str(run / "outcome.json")),
        *("--model", str(run / "trainer/model"), "--data", str(prepared / "manifest.json")),
        *("--out", str(run / "quality.json")),
    ]
