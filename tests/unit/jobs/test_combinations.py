"""Models, strategies and precisions take two steps together, on two processes and the CPU: each two
choices that a study combines on a GPU are in one of the combinations here.

The policies of sharding and autocast are those of a GPU; the lists of operations that autocast
computes in half precision are the CPU's. Not here, because they need a GPU: PyTorch's first FSDP,
and the fp8 of torchao. Training in fp32 is in test_strategies.py and test_models_train.py.
"""

import json
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from training_jobs import run_ranks

from feedrate.config.plan import make_plan
from feedrate.config.project import load_project

ROOT = Path(__file__).resolve().parents[3]
SHARED = ("strategy", "cpu_offload", "precision")
ELSEWHERE = ("fp8", "fp32", "tf32")


def requested() -> list[dict]:
    """The different combinations of all studies, planned for all GPUs of the registry."""
    devices = yaml.safe_load((ROOT / "config/devices.yaml").read_text())
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    config["devices"] = [name for name, device in devices.items() if device["kind"] == "cuda"]
    config["studies"] = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
    found = {}
    for spec in make_plan(load_project(ROOT, config)).runs.values():
        model, train = spec.settings.model, spec.settings.train
        if spec.task != "training" or train.limit_all_gathers is not None:
            continue
        if train.precision in ELSEWHERE:
            continue
        combination = {
            "model": {"name": model.name, "size": "tiny", "checkpointing": model.checkpointing},
            "train": {name: getattr(train, name) for name in SHARED},
        }
        found[name_of(combination)] = combination
    return [found[name] for name in sorted(found)]


def name_of(combination: dict) -> str:
    """A short name: "flava-ac-fsdp-bf16"."""
    model, train = combination["model"], combination["train"]
    parts = model["name"], model["checkpointing"] and "ac", train["strategy"]
    return "-".join(filter(None, (*parts, train["cpu_offload"] and "offload", train["precision"])))


def pairs(combination: dict) -> set[tuple]:
    """Each two choices of a combination."""
    choices = {**combination["model"], **combination["train"]}
    return set(combinations(sorted(choices.items()), 2))


def whole(name: str) -> str:
    """The name of the unsharded combination that a sharded one starts like."""
    return name.replace("-ac-fsdp-offload", "-fsdp").replace("fsdp", "ddp")


def chosen(asked: list[dict]) -> list[dict]:
    """So many of them that each of their pairs is there, sharded ones only with their like."""
    left, found = set().union(*map(pairs, asked)), {}
    cheapest = sorted(asked, key=lambda one: ("fsdp" in name_of(one), "fp16" in name_of(one)))
    while left:
        best = max(cheapest, key=lambda one: len(pairs(one) & left))
        found[name_of(best)] = best
        left -= pairs(best)
    found |= {name_of(one): one for one in asked if name_of(one) in set(map(whole, found))}
    return [found[name] for name in sorted(found)]


@pytest.fixture(scope="module")
def everything() -> list[dict]:
    """All combinations that the studies ask for."""
    return requested()


@pytest.fixture(scope="module")
def answers(everything, labelled, tmp_path_factory):
    """What both ranks told about each combination that is tried, by name."""
    tried = chosen(everything)
    out = tmp_path_factory.mktemp("combinations")
    (out / "asked.json").write_text(json.dumps(tried))
    errors = run_ranks("combinations.py", labelled, out, out / "asked.json", timeout=500)
    assert (out / "answers.1.json").is_file(), errors[-6000:]
    told = [json.loads((out / f"answers.{rank}.json").read_text()) for rank in range(2)]
    return {name_of(asked): pair for asked, *pair in zip(tried, *told, strict=True)}


def test_what_the_studies_ask_for_is_all_there(everything):
    names = {name_of(combination) for combination in everything}
    assert {"flava-fsdp-bf16", "flava-ac-fsdp-offload-bf16", "vit-fsdp-fp16"} <= names
    assert {name.partition("-")[0] for name in names} >= {"bridgetower", "clip", "flava", "vit"}


def test_every_combination_trains(answers):
    for name, (first, second) in answers.items():
        for told in (first, second):
            assert "error" not in told, told["traceback"]
            assert told["name"] == ("fsdp" if "fsdp" in name else "ddp")
            assert len(told["values"]) == 2
            assert told["values"][1] != told["values"][0], name
            assert not told["broadcasts"]
        assert first["weights"] == pytest.approx(second["weights"], rel=1e-6), name


def test_a_sharded_loss_is_not_rounded_and_starts_as_that_of_ddp(answers):
    """The loss, and so the scale that keeps fp16 gradients in range, are those of ddp."""
    sharded_names = [name for name in answers if "fsdp" in name and not name.endswith("_full")]
    assert sharded_names
    for name in sharded_names:
        for sharded, expected in zip(answers[name], answers[whole(name)], strict=True):
            assert sharded["dtypes"] == ["torch.float32"]
            assert sharded["reduce_dtype"] == expected["reduce_dtype"] == "float32"
            assert sharded["values"] == pytest.approx(expected["values"], rel=2e-3)
            assert sharded["scales"] == expected["scales"]
