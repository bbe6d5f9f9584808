"""Golden data of the plan, and the command that writes it again: see README.md."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import load_project
from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.spec import Protocol, RunSpec
from feedrate.config.values import read_yaml
from feedrate.core.files import digest_value

GOLDEN = Path(__file__).resolve().parent
ROOT = GOLDEN.parents[1]

DIGESTS = GOLDEN / "specs/digests.json"
DEFAULTS = GOLDEN / "specs/defaults.json"
EXAMPLES = GOLDEN / "specs/examples.json"
REMOVED_KEYS = ("protocol.virtual", "protocol.save_checkpoints")
"""Keys of a spec that are compared with no value. A key with its default (in defaults.json) is left
out too, so that a setting which is removed or added changes no digest where nobody used it."""
EXAMPLE_RUNS = (
    ("bridgetower-dataloading", "cpu", "workers=2~decode=reference~strategy=ddp", 2),
    ("bridgetower-dataloading", "gaudi2", "workers=1~decode=device~strategy=fast_ddp-graphs", 1),
    ("bridgetower-speedups", "h100", "recipe=fp8~batch=96", 3),
    (
        *("bridgetower-inference", "gaudi3"),
        *("head=clip~batch=128~precision=bf16~execution=eager~preprocessing=in", 3),
    ),
    ("bridgetower-quality", "h200", "network=clip~precision=bf16~decode=host", 1),
    ("flava-scaling", "a100-40gb-x16", "size=1.8B~strategy=ac-bf16", 2),
    ("gaudi-accelerations", "gaudi2", "network=swin~technique=non-blocking", 3),
    ("dataloading-levels", "l4", "decode=device~scaled=false~workers=2", 1),
    ("vit-speedups", "rtx-4090", "size=huge~technique=beyond", 1),
    ("vit-profile", "v100", "precision=fp16", 1),
)


def write_rows(file: Path, rows: dict[str, Any]) -> None:
    """Write a JSON object with one line per key."""
    file.parent.mkdir(exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The values of nested objects by dotted key."""
    found: list[tuple[str, Any]] = []
    for name, inner in value.items():
        if isinstance(inner, dict):
            found += flat(inner, f"{prefix}{name}.")
        else:
            found.append((prefix + name, inner))
    return found


def defaults() -> dict[str, Any]:
    """The defaults of the keys of a spec."""
    model = ModelSettings(name="any", size="any")
    parts = {"settings": Settings(model=model), "protocol": Protocol(steps=2, warmup_steps=1)}
    known = zip(RunSpec.__struct_fields__[::-1], RunSpec.__struct_defaults__[::-1], strict=False)
    own = {name: value for name, value in known if value is not msgspec.NODEFAULT}
    found = dict(flat(msgspec.to_builtins(own | parts)))
    needed = ("settings.model.name", "settings.model.size", "protocol.steps")
    return {k: v for k, v in found.items() if k not in (*needed, "protocol.warmup_steps")}


def compared(spec: Any, usual: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a spec (of its builtins): the values that differ from the defaults."""
    found: dict[str, Any] = {}
    for key, value in flat(spec):
        default = usual.get(key, ...)
        same = value == default and type(value) is type(default)
        if not same and key not in REMOVED_KEYS:
            found[key] = value
    return found


def whole_plan() -> Plan:
    """The plan of every study on every device."""
    config = read_yaml(ROOT / "config/config.yaml")
    studies = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
    devices = list(read_yaml(ROOT / "config/devices.yaml"))
    return make_plan(load_project(ROOT, config | {"studies": studies, "devices": devices}))


def spec_digests(plan: Plan, usual: dict[str, Any]) -> dict[str, dict[str, str]]:
    """By study and device: the number of runs and a digest of what is compared of their specs, in
    their order, and of the cells without runs."""
    cells: dict[str, dict[str, list[Any]]] = {}
    for (study, device, _, _), spec in plan.runs.items():
        value = compared(msgspec.to_builtins(spec), usual)
        cells.setdefault(study, {}).setdefault(device, []).append(value)
    counts = {s: {d: len(runs) for d, runs in found.items()} for s, found in cells.items()}
    for kind in (plan.unsupported, plan.shared):
        for cell in kind:
            value = [cell.cell, getattr(cell, "lacks", ""), getattr(cell, "measured_as", "")]
            cells.setdefault(cell.study, {}).setdefault(cell.device, []).append(value)
    return {
        study: {
            device: f"{counts.get(study, {}).get(device, 0)} {digest_value(values)[:16]}"
            for device, values in found.items()
        }
        for study, found in sorted(cells.items())
    }


def freeze_specs() -> None:
    """Write the digests and examples of specs again."""
    plan, usual = whole_plan(), defaults()
    write_rows(DEFAULTS, usual)
    write_rows(DIGESTS, spec_digests(plan, usual))
    examples = {"/".join(map(str, k)): msgspec.to_builtins(plan.runs[k]) for k in EXAMPLE_RUNS}
    write_rows(EXAMPLES, examples)


PARTS = {"specs": freeze_specs}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
