"""Self-tests of a few parts, on the data of a test."""

import json
import shutil
from pathlib import Path

import yaml

from feedrate.cli import selftest
from feedrate.config.devices import Device
from feedrate.core.files import digest_file, write_json

PARTS = Path(__file__).resolve().parents[1] / "config/selftest.yaml"


QUICK = {"steps": 2, "warmup_steps": 1, "ceiling_s": 0.02}
"""A protocol for tests of what a part finds, and not of how long it takes."""


def some_parts(folder: Path, *levels: str, **protocol: object) -> Path:
    """The file of parts with these only, of small batches; `protocol` changes keys of the
    protocol."""
    whole = yaml.safe_load(PARTS.read_text())
    whole["protocol"] |= protocol
    whole["settings"]["loader"]["max_tokens"] = 6
    whole["settings"]["train"]["batch_size"] = 2
    factor = whole["factors"]["part"]
    factor["levels"] = list(levels)
    factor["bundles"] = {level: factor["bundles"][level] for level in levels}
    factor["requires"] = {k: v for k, v in factor["requires"].items() if k in levels}
    whole["exclude"] = [e for e in whole["exclude"] if e["levels"]["part"] in levels]
    for change in whole["adapt"].values():
        bundles = change["bundles"]["part"]
        change["bundles"]["part"] = {k: v for k, v in bundles.items() if k in levels}
    path = folder / "selftest.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    return path


def run_selftest(
    name: str, entry: Device, parts: Path, prepared: Path, folder: Path
) -> dict[str, dict[str, str]]:
    """The lines of a self-test by their subjects."""
    data = shutil.copytree(prepared, folder / "tiny/prepared")
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["files"] = {name: digest_file(data / name) for name in manifest["files"]}
    write_json(data / "manifest.json", manifest)  # the fixture has changed some of them
    out, manifest = folder / "out/selftest.json", data / "manifest.json"
    selftest.selftest_device(name, entry, parts, manifest, out, 9.5)
    figures = json.loads(out.read_text())
    return {line["subject"]: line for line in figures["lines"]}
