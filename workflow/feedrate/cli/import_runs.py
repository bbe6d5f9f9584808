"""`python -m feedrate import`: other people's runs, from their logs, next to ours in the report."""

import argparse
import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec.json import schema
from rich.text import Text

from feedrate.cli.display import output, table
from feedrate.config.additions import Import
from feedrate.config.project import load_project
from feedrate.config.values import load, parse_level
from feedrate.core import paths
from feedrate.core.errors import UsageError
from feedrate.core.files import write_json
from feedrate.results.imported import Imported, imported
from feedrate.results.params import import_settings
from feedrate.results.statistics import rate_text

CONFIG = "config/config.yaml"
OPTIONS = ("study", "device", "batch_size", "precision", "flops_per_sample", "only", "source")
"""Keys of an entry that are options of the command."""
NUMBERS = ("batch_size", "flops_per_sample")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command: the keys of an entry of `imports` in config.yaml."""
    parser.add_argument("folder", metavar="DIR", help="a folder, or one file, of results and logs")
    about = "a level of the study, as workers=2; repeatable; only runs with all levels are compared"
    parser.add_argument("--level", metavar="FACTOR=LEVEL", action="append", default=[], help=about)
    keys = schema(Import)["$defs"]["Import"]["properties"]
    for name in OPTIONS:
        option, about = f"--{name.replace('_', '-')}", keys[name]["description"]
        kind = parse_level if name in NUMBERS else str
        needed = name in ("study", "device")
        parser.add_argument(option, metavar="VALUE", help=about, required=needed, type=kind)
    about = "show what would be imported, and add nothing to the report"
    parser.add_argument("--dry-run", action="store_true", help=about)


def import_runs(options: argparse.Namespace) -> int:
    """Print what the files say, and let every later report show it; return the exit code."""
    entry = _entry(options)
    chosen = {"studies": [options.study], "devices": [options.device], "imports": [entry]}
    config = load(Path(CONFIG), dict[str, Any], CONFIG) | chosen
    project = load_project(Path(), config, origin="feedrate import")
    settings = import_settings(project, options.study)
    found = imported(msgspec.structs.replace(settings, imports=settings.imports[:1]))
    _show(found)
    if not found.records:
        raise UsageError(f"{options.folder}: no run in it; the remarks above say why")
    if not options.dry_run:
        file = Path(paths.IMPORTS)
        known = json.loads(file.read_bytes()) if file.is_file() else []
        write_json(file, [one for one in known if one != entry] + [entry])
        told = f"Added to {file}: reports that include the study {options.study} show these runs."
        output().print(told, soft_wrap=True)
    return 0


def _entry(options: argparse.Namespace) -> dict[str, Any]:
    pairs = [text.partition("=")[::2] for text in options.level]
    if twice := [name for name, count in Counter(n for n, _ in pairs).items() if count > 1]:
        raise UsageError(f"--level {twice[0]}: not allowed; it is given twice")
    levels = dict(pairs)
    if wrong := [name for name, level in levels.items() if not name or not level]:
        raise UsageError(f"--level {wrong[0]}: not allowed; expected FACTOR=LEVEL, as workers=2")
    entry = {name: parse_level(level) for name, level in levels.items()}
    told = {name: getattr(options, name) for name in ("folder", *OPTIONS)} | {"levels": entry}
    return {name: value for name, value in told.items() if value or value == 0}


def _show(found: Imported) -> None:
    console = output()
    heads = ("status", "samples/s", "checks", "run, and why it does not count")
    rows = (
        (
            one.status,
            rate_text(one.trainer.samples_per_s) if one.trainer.samples_per_s else "",
            f"{sum(check.passed for check in one.checks)} of {len(one.checks)}",
            Text("\n".join(filter(None, (one.provenance.imported_from, one.cause)))),
        )
        for one in found.records
    )
    console.print(table("Runs", heads, rows, left=heads[:1], wrapped=heads[3:]))
    notes = [one for one in found.files if one.note]
    for note, files in groupby(sorted(notes, key=lambda one: one.note), key=lambda one: one.note):
        names = [one.file for one in files]
        more = f" and {len(names) - 5} more" * (len(names) > 5)
        console.print(Text(f"{', '.join(names[:5])}{more}: {note}"), soft_wrap=True)
