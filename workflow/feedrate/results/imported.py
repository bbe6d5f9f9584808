"""Records of runs that others made: what their files say and nothing else, checked like ours as far
as they allow it."""

import math
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import msgspec

from feedrate.config.additions import Import
from feedrate.config.values import Strict, cell_name
from feedrate.core.files import digest_file, write_json
from feedrate.core.scrub import hide_secrets
from feedrate.logs.reading import Found, ReadFile, find_runs
from feedrate.logs.trainer import MAX_CHARS, TrainerFigures, number, one_line, trainer_figures
from feedrate.results.audit import Rate, excess
from feedrate.results.conformity import Judgement
from feedrate.results.crate import results_of
from feedrate.results.params import ImportDevice, ImportSettings
from feedrate.results.record import Check, MadeFrom, Record
from feedrate.results.schema import Provenance, Status
from feedrate.results.statistics import rate_text

FULLEST, EMPTIEST = 1.02, 0.5
"""Between these shares of steps x batch x devices lie the samples of a run: the last batch of a
short epoch is small, and rates are rounded."""
_RATE = re.compile(r"(?:per_second|per_s|rate|value)\W{1,40}?(\d[\d.]*(?:e[+-]?\d+)?)")
"""A rate after its name: in JSON, in a printed dict or table, in a milabench event."""
LEFT_OUT = "it has no run of this study on this device that fits `only`"


class Imported(Strict, kw_only=True):
    """imported.json of a study."""

    records: list[Record] = []
    files: list[ReadFile] = []


class Evidence(NamedTuple):
    """The input of the checks of an imported run."""

    entry: Import
    device: ImportDevice
    run: Found
    figures: TrainerFigures
    pixels_only: bool


def import_runs(settings: ImportSettings, out: Path) -> None:
    """Write the records of a study's imports, and print the result for each file."""
    found = imported(settings)
    write_json(out, msgspec.to_builtins(found))
    print(f"{len(found.records)} runs in {len(found.files)} files")


def imported(settings: ImportSettings) -> Imported:
    """The records of all imports of a study. Raises LogError for a folder that is missing, and
    ArchiveError for an archive that is not safe to unpack."""
    records: list[Record] = []
    files: list[ReadFile] = []
    for entry in settings.imports:
        with results_of(Path(entry.folder)) as folder:
            runs, read = find_runs(folder)
            own = [run for run in runs if _is_wanted(run, entry, settings.devices[entry.device])]
            for run in own:
                repeat = 1 + sum(record.device == entry.device for record in records)
                records.append(record_of(run, entry, settings, repeat, folder))
        used = {name for run in own for name in run.files}
        left_out = {name for run in runs for name in run.files} - used
        for one in read:
            notes = [one.note, LEFT_OUT if one.file in left_out else ""]
            note = "; ".join(filter(None, notes))
            file = f"{entry.source or entry.folder}: {one.file}"  # several imports may have it
            files.append(msgspec.structs.replace(one, file=file, note=note))
    return Imported(records=records, files=files)


def _is_wanted(run: Found, entry: Import, device: ImportDevice) -> bool:
    """Whether a run is of the import's study and device, if it names them, and fits its pattern."""
    if run.device not in ("", entry.device, device.variant_of):
        return False
    return run.study in ("", entry.study) and any(
        fnmatch(name, entry.only) for name in (run.label, *run.files)
    )


def record_of(
    run: Found, entry: Import, settings: ImportSettings, repeat: int, folder: Path
) -> Record:
    """The record of one run of `folder`; `repeat` counts the imported runs on its device."""
    device = settings.devices[entry.device]
    figures = _figures(run, entry, device)
    evidence = Evidence(entry, device, run, figures, settings.pixels_only)
    checks = [
        Check(name=check.__name__, passed=passed, detail=detail)
        for check in CHECKS
        for passed, detail in [check(evidence)]
    ]
    status, cause = _status(run, figures, checks)
    given = {**run.levels, **entry.levels}
    levels = {name: given[name] for name in settings.factors if name in given}
    base = folder if folder.is_dir() else folder.parent
    origin = entry.source or entry.folder, ", ".join(run.files), run.label
    return Record(
        study=entry.study,
        device=entry.device,
        cell=cell_name(levels) or "unknown",
        levels=levels,
        repeat=repeat,
        status=status,
        cause=cause,
        flops_per_sample=entry.flops_per_sample,
        trainer=figures,
        evaluation=dict(run.evaluation),
        checks=checks,
        provenance=Provenance(provenance="imported", imported_from=": ".join(filter(None, origin))),
        made_from=MadeFrom(
            files={name: digest_file(base / name) for name in run.files},
            line=next(filter(None, (_line(run, base, name) for name in run.files)), ""),
        ),
    )


def _line(run: Found, base: Path, name: str) -> str:
    """`file:number: text` of the last line of the file `name` in `base` with the run's rate after a
    rate's name or, without a rate, with the cause of the run's end. Empty where no line has it, as
    for a median of rates, a progress bar or a binary file."""
    reported = (
        number(run.metrics.get(f"train_{what}_per_second")) for what in ("samples", "steps")
    )
    rate, last = next(filter(None, reported), None), ""
    with (base / name).open(encoding="utf-8", errors="replace", newline="\n") as stream:
        for count, line in enumerate(stream, start=1):
            named = _RATE.finditer(line) if rate else ()
            found = next((one for one in named if number(one[1]) == rate), None)
            if found or (not rate and run.cause.line and run.cause.line in line):
                at = found.start() if found else 0
                near = hide_secrets(line[:at])[-MAX_CHARS // 2 :] + line[at:]
                last = f"{name}:{count}: {one_line(near)}"
    return last


def _figures(run: Found, entry: Import, device: ImportDevice) -> TrainerFigures:
    """The figures as reported. Without a rate in samples, that of the steps times the batch that
    the import gives."""
    found = trainer_figures(run.metrics, run.library)
    if found.samples_per_s is None and found.steps_per_s and entry.batch_size:
        rate = found.steps_per_s * entry.batch_size * device.count
        return msgspec.structs.replace(found, samples_per_s=rate)
    return found


def _status(run: Found, figures: TrainerFigures, checks: list[Check]) -> tuple[Status, str]:
    """Status and cause. Whoever printed the training's figures has trained; the checks decide."""
    name, line = run.cause
    wrong = [check.detail for check in checks if not check.passed]
    if name in ("success", "unknown") or figures.runtime_s is not None:
        return ("invalid", wrong[0]) if wrong else ("ok", "")
    cause = one_line(f"{name}: {line}")
    return ("out_of_memory" if name.endswith("out of memory") else "failed"), cause


def rate_reported(e: Evidence) -> Judgement:
    """There is a throughput above 0."""
    rate = e.figures.samples_per_s
    if rate is None or rate <= 0:
        return False, "No file gives a rate in samples/s, or the batch size to compute it from."
    return True, f"{rate_text(rate)} samples/s, as reported."


def whole_run_timed(e: Evidence) -> Judgement:
    """The job was not resumed: a resumed Trainer divides all samples by the time since then."""
    first, steps_per_s, runtime = e.run.resumed_from, e.figures.steps_per_s, e.figures.runtime_s
    if not first:
        return True, "Nothing shows that the job was resumed."
    steps = steps_per_s * runtime if steps_per_s and runtime else None
    text = f"The job was resumed at step {first}, but its rate includes the steps before"
    if steps and steps > first and e.figures.samples_per_s:
        own = e.figures.samples_per_s * (1 - first / steps)
        return (
            False,
            f"{text}; over the {steps - first:.0f} steps since: {rate_text(own)} samples/s.",
        )
    return False, f"{text}."


def loss_finite(e: Evidence) -> Judgement:
    """The mean loss, if there is one, is finite and not exactly 0."""
    if e.run.cause.name == "NaN or zero loss":
        return False, one_line(f"The loss is not finite, or exactly 0: {e.run.cause.line}")
    text = e.run.metrics.get("train_loss")
    try:
        loss = float(text) if text is not None else None
    except (TypeError, ValueError):
        return False, one_line(f"The loss is not a number: {text}")
    if loss is None:
        return True, "No loss was reported."
    passed = math.isfinite(loss) and loss != 0
    return passed, f"The mean loss is {loss:.4g}."


def samples_identity(e: Evidence) -> Judgement:
    """Samples per step are the batch x devices, or fewer where a last batch is small."""
    rate, steps, batch = e.figures.samples_per_s, e.figures.steps_per_s, e.entry.batch_size
    if not rate or not steps or not batch:
        return True, "Rates of samples and steps, or the batch, are not known."
    expected, seen = batch * e.device.count, rate / steps
    text = f"{seen:.4g} samples per step; batch {batch} x {e.device.count} devices = {expected}."
    return EMPTIEST <= seen / expected <= FULLEST, text


def mfu_at_most_100_percent(e: Evidence) -> Judgement:
    """MFU is at most 1, by the FLOPs of a sample or else by the Trainer's own count."""
    peaks = {p.precision: p.datasheet_tflops or p.achievable_tflops for p in e.device.peaks}
    known = {precision: peak for precision, peak in peaks.items() if peak}
    rate, flops = e.figures.samples_per_s, e.entry.flops_per_sample
    total, runtime = e.figures.total_flos, e.figures.runtime_s
    if rate and flops:
        flops_per_s, origin = flops * rate, "flops_per_sample"
    elif not total or not runtime or e.run.resumed_from:
        return True, "FLOPs are not known."
    elif e.pixels_only:
        return True, "total_flos takes pixels for tokens; give flops_per_sample."
    else:
        flops_per_s, origin = total / runtime, "the Trainer's total_flos"
    if not known:
        return True, "No peak is known for this device."
    tflops = flops_per_s / e.device.count / 1e12
    fastest = max(known, key=lambda precision: known[precision])
    precision = e.entry.precision if e.entry.precision in known else fastest
    share = tflops / known[precision]
    found = Rate(None, tflops, share, precision)
    if wrong := excess(f"By {origin}", found, {precision: known[precision]}):
        return False, wrong
    return True, f"MFU is {share:.1%} of the peak in {precision}, by {origin}."


CHECKS = (rate_reported, whole_run_timed, loss_finite, samples_identity, mfu_at_most_100_percent)
"""In the order of the report."""
