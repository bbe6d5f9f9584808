"""`make lab`: run the laboratory of planted faults, and write what the product says of them.

Writes latest.json beside this file, and the tables of docs/measurement-lab.md.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import warm
from benchmarks.default_study import ROOT
from benchmarks.figure import put
from benchmarks.lab import faults, report, score, traced
from benchmarks.lab.faults import Case
from benchmarks.lab.runs import DEVICES, FACTOR, STUDY, Bench
from feedrate.config.study import Factor, Thresholds
from feedrate.core.files import write_json
from feedrate.core.paths import RECORD_NAME
from feedrate.devices.host import host_facts, memory_gib
from feedrate.results.collect import cell_rows, run_table
from feedrate.results.files import rows_of
from feedrate.results.params import CollectSettings, CollectStudy

LATEST, PAGE = Path(__file__).with_name("latest.json"), ROOT / "docs/measurement-lab.md"


def options(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__.splitlines()[0])
    parser.add_argument("--clean", type=int, help="number of clean runs (faults.yaml: 60)")
    parser.add_argument("--half", choices=["known", "held_out"], default="", help="only this half")
    parser.add_argument("--kinds", nargs="*", default=[], help="only these kinds of faults")
    parser.add_argument("--folder", type=Path, help="keep the runs here; finished ones stay")
    parser.add_argument("--traceml", type=Path, help="folder with traceml-ai: ask it as well")
    told = "only the runs that TraceML is asked about; docs and latest.json stay as they are"
    parser.add_argument("--only-traced", action="store_true", help=told)
    parser.add_argument("--no-docs", action="store_true", help="do not change the docs")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Run the laboratory; exit code 1 for a false alarm, a wrong answer or an unnamed rank."""
    given, lab = options(words), faults.read()
    clean = lab.clean.runs if given.clean is None else given.clean
    cases = faults.order(lab, clean, given.kinds, given.half)
    if given.only_traced:
        cases = [case for case in cases if traced.is_traced(case)]
    told: dict[str, dict[str, str]] = {}
    with nullcontext(given.folder) if given.folder else tempfile.TemporaryDirectory() as folder:
        bench = Bench(lab, Path(folder), warm.python())
        bench.calibrate()
        minutes = 0.0
        for place, case in enumerate(cases, start=1):
            record = bench.run(case)
            minutes += (record.provenance.duration_s or 0.0) / 60
            rate = record.measurement.samples_per_s if record.measurement else 0.0
            print(
                f"{place}/{len(cases)} {case.name}: {record.status}, {rate:.4g} samples/s",
                flush=True,
            )
            if given.traceml and traced.is_traced(case):
                told[case.name] = {traced.TOOL: traced.diagnose(bench, case, given.traceml)}
        found = score.results(cases, cells(bench, cases), told)
        again = sum(bench.attempts(case) - 1 for case in cases)
    text = report.markdown(found, lab, about(found, minutes, again))
    print(text)
    if not given.only_traced:
        write_json(LATEST, json.loads(msgspec.json.encode(found)))
        if not given.no_docs:
            put(text, PAGE, "make lab")
    rules = score.Rules(lab)
    scores = score.costly(found, rules), score.ranks_named(found, lab)
    missed = any(one.right < one.of for one in scores)
    return int(missed or bool(score.false_alarms(found, rules)))


def cells(bench: Bench, cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """The rows of cells.csv by the runs' names, as the product makes them from one study's records.

    Added are the failed checks, the rate and the wait of the run, which a rejected one has too.
    """
    factors = {FACTOR: Factor(levels=[case.name for case in cases])}
    study = CollectStudy(factors=factors, baseline={FACTOR: cases[0].name}, thresholds=Thresholds())
    # Registered memory is needed for a verdict; what the device itself reports takes precedence.
    known: dict[str, float | None] = dict.fromkeys(DEVICES.values(), memory_gib())
    settings = CollectSettings(studies={STUDY: study}, memory_gib=known, unsupported=[])
    runs = run_table([str(bench.run_folder(case) / RECORD_NAME) for case in cases], settings)
    of_run = {row[FACTOR]: row for row in rows_of(runs)}
    return {
        name: {
            **row,
            "failed_checks": of_run[name]["failed_checks"] or "",
            "run_samples_per_s": of_run[name]["samples_per_s"],
            "run_wait_share": of_run[name]["data_wait_share"],
        }
        for row in cell_rows(runs, settings)
        if (name := row[FACTOR])
    }


def about(found: Sequence[score.Result], minutes: float, again: int) -> str:
    """When and where, and how many runs were made `again`, in two sentences."""
    facts, clean = host_facts(), sum(not one.kind for one in found)
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} on {facts['cores_of_host']} cores: "
        f"{len(found) - clean} planted faults and {clean} clean runs, whose jobs took "
        f"{minutes:.0f} minutes. "
        f"Runs made again because something that nobody planted disturbed them: {again}."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
