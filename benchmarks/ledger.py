"""`python -m benchmarks.ledger [COMBINATIONS [FOLDER]]`: predict changes of settings, store the
predictions, then make the changes.

Every combination of the levels below is trained once, for a few seconds. After each training, all
changes of one setting that lead to a combination which has not run yet are predicted and stored.
At the end every prediction is compared with what was measured after it. Takes about 15 minutes on
two cores. Writes benchmarks/ledger-latest.jsonl: the predictions with their outcomes, and, if all
combinations were trained, the table of docs/measurement-predictions.md.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.default_study import ROOT, default_spec, prepare_default
from benchmarks.figure import put
from benchmarks.loading import make_store
from benchmarks.process import run
from feedrate.config.spec import RunSpec
from feedrate.config.values import Level, cell_name, convert
from feedrate.core.files import canonical_json
from feedrate.core.paths import RECORD_NAME
from feedrate.data.manifest import STORE_INDEX, store_folder
from feedrate.results.assemble import update_records
from feedrate.results.ledger import Outcome, WouldHelp, predict_changes
from feedrate.results.params import BATCH, DECODE, TOKENS, WORKERS, DeviceFacts

LEVELS: dict[str, list[Level]] = {
    DECODE: ["reference", "host", "cache"],
    WORKERS: [0, 1, 2],
    TOKENS: [32, 16],
    BATCH: [8, 4],
}
PROTOCOL = {"steps": 36, "warmup_steps": 6, "ceiling_s": 1.5}
LATEST = Path(__file__).parent / "ledger-latest.jsonl"
PAGE = ROOT / "docs/measurement-predictions.md"
FEWEST, GOAL = 40, 0.1
"""Predictions with a result, and their median error without its sign."""
STUDY, DEVICE = "ledger", "cpu"


def combinations() -> Iterator[dict[str, Level]]:
    """All combinations: first the baseline and what differs from it in one setting, so that every
    part has been measured once; then the others, slow decode paths first, because virtual speed-ups
    predict faster ones only. The rest of the order is by chance."""
    names = list(LEVELS)
    found = [dict(zip(names, levels, strict=True)) for levels in product(*LEVELS.values())]
    random.Random(1).shuffle(found)
    base = {name: levels[0] for name, levels in LEVELS.items()}
    paths = LEVELS[DECODE]

    def place(one: dict[str, Level]) -> tuple[int, int]:
        others = sum(one[name] != base[name] for name in names)
        return min(2, others), paths.index(one[DECODE])

    return iter(sorted(found, key=place))


def spec_of(levels: dict[str, Level], folder: Path, prepared: Path) -> dict[str, Any]:
    """The spec of a combination: a run of the default study with these settings; its store exists
    then."""
    spec = default_spec()
    for name, level in levels.items():
        part, _, key = name.partition(".")
        spec["settings"][part][key] = level
    short = {name.partition(".")[2]: level for name, level in levels.items()}
    spec |= {"study": STUDY, "levels": short, "cell": cell_name(short)}
    spec["protocol"] |= PROTOCOL | {"virtual": [] if levels[DECODE] == "cache" else ["decode"]}
    settings = convert(spec, RunSpec, "benchmark").settings
    if (store := store_folder(settings, prepared)) and not store.exists():
        make_store(store / STORE_INDEX, prepared, folder, settings)
    return spec


def train(spec: dict[str, Any], prepared: Path, folder: Path) -> Path:
    """Train a combination with the suite's own job; returns the run's folder."""
    out = folder / "results" / STUDY / DEVICE / spec["cell"] / "rep1"
    given = folder / "spec.json"
    given.write_text(json.dumps(spec))
    command = [sys.executable, "-m", "feedrate", "train", "--spec", str(given), "--quiet"]
    run([*command, "--data", str(prepared / "manifest.json"), "--out", str(out)], folder)
    return out


def outcomes(folder: Path, runs: list[Path]) -> list[Outcome]:
    """Bring records and ledger up to date with the suite's own jobs; all predictions so far."""
    update_records(runs, DeviceFacts(), parser="")
    listed, out = folder / "records", folder / "would_help.json"
    listed.write_text("".join(f"{run / RECORD_NAME}\n" for run in runs))
    predict_changes(listed, folder / "results/ledger.jsonl", out)
    told = msgspec.json.decode(out.read_bytes(), type=WouldHelp)
    if told.fault:
        raise RuntimeError(told.fault)
    return told.outcomes


def report(found: list[Outcome]) -> Iterator[str]:
    """A sentence, and lines of a Markdown table: how far the predictions were off, by setting and
    rule. Only predictions whose change ran later count."""
    counted = [abs(e) for one in found if (e := one.error) is not None]
    yield (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {len(found)} predictions, {len(counted)} of "
        f"them with a result, median error {median(counted):.1%} (without its sign)."
        if counted
        else f"{len(found)} predictions, none with a result."
    )
    yield ""
    yield "| setting | rule | predictions | median error | nine of ten within | median bias |"
    yield "|---|---|---|---|---|---|"
    rules = sorted({one.rule for one in found})
    for setting, rule in product([*LEVELS, "all"], rules):
        errors = [
            e
            for one in found
            if (e := one.error) is not None and one.rule == rule and setting in ("all", one.setting)
        ]
        if errors:
            sizes = sorted(map(abs, errors))
            most = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
            yield (
                f"| {setting} | {rule} | {len(errors)} | {median(sizes):.1%} | {most:.1%} "
                f"| {median(errors):+.1%} |"
            )


def main(words: list[str]) -> int:
    """Train, predict and compare; exit code 1 if the goal is not met."""
    limit = int(words[0]) if words else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(words[1] if len(words) > 1 else name)
        folder.mkdir(parents=True, exist_ok=True)
        prepared = prepare_default(folder)
        runs: list[Path] = []
        found: list[Outcome] = []
        for levels in list(combinations())[:limit]:
            runs.append(train(spec_of(levels, folder, prepared), prepared, folder))
            found = outcomes(folder, runs)
            print(f"{len(found):4} predictions  {runs[-1].parent.name}", flush=True)
    lines = [canonical_json(msgspec.to_builtins(one)) + "\n" for one in found]
    LATEST.write_text("".join(lines))
    text = "\n".join(report(found))
    print(text)
    if limit is None:
        put(text, PAGE, "make ledger")
    counted = [abs(e) for one in found if (e := one.error) is not None]
    return 0 if len(counted) >= FEWEST and median(counted) <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
