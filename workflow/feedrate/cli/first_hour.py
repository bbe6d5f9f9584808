"""The command `first-hour`: the most telling measurements of a machine that fit into some minutes.

Each stage is a command that a user can type, in a process of its own. The report is made again
after each cell, so what has ended is shown, however a later stage ends.
"""

import argparse
import contextlib
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from feedrate.cli.jobs import STOPPED
from feedrate.cli.plan import chosen_runs
from feedrate.cli.run import report_on_what_exists, show
from feedrate.cli.snakemake import (
    add_choices,
    check_configuration,
    layers_of,
    on_stop_signal,
    snakemake_arguments,
)
from feedrate.config.devices import DETECTED
from feedrate.config.spec import RunSpec
from feedrate.core import paths
from feedrate.core.errors import UsageError
from feedrate.core.files import write_text
from feedrate.core.processes import command_text, die_with_parent
from feedrate.devices import host
from feedrate.flow import driver
from feedrate.flow.graph import Graph
from feedrate.report.text import bounds, number, share
from feedrate.results.files import CELLS, read_csv

CONFIG = "config/first-hour.yaml"
STATUS, LOGS = Path(paths.RESULTS, "first-hour.txt"), Path(paths.LOGS, "first-hour")
RESERVE_S = 5.0  # time to stop the last stage and for the last lines, s
STOP_S = 15.0  # a stage that has not stopped its jobs by then is killed
SELFTEST, SELFTEST_SHARE = paths.SELFTEST_TARGET, 0.25
"""The stage, and the share of the time that it may take."""
SHOWN = {
    "doctor": r"^(?:will fail.*|\d+ .*fine)$",
    "data": r"^prepared .*",
    SELFTEST: r"^(?:failed .*|\d+ (?:failed|unknown|passed|not claimed).*)$",
}
"""The lines of a stage's output that its own line shows; if none fits, the last one."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    text = "the time for all stages; default: %(default)s"
    parser.add_argument("--minutes", type=float, metavar="N", default=10.0, help=text)


def interrupt() -> None:
    """End what runs now, as Ctrl-C does."""
    raise KeyboardInterrupt


@on_stop_signal(interrupt)
def first_hour(options: argparse.Namespace) -> int:
    """Run the stages, print a line for each and the answers; 1 if a stage failed, STOPPED if a stop
    signal came: it ends the stages, not what follows them."""
    options.configfile = [CONFIG, *options.configfile]
    machine = host.machine()
    if layers_of(options).values["devices"] == [DETECTED] and not machine.models:
        options.device = ["cpu"]
    graph = Graph(check_configuration(options, []), Path().resolve())
    if reason := driver.occupied():
        raise driver.Occupied(reason)
    runs: dict[str, list[RunSpec]] = {}
    left_out: dict[str, list[str]] = {}  # stages by reason
    for stage in graph.project.config.first_hour:
        try:
            runs[stage] = [] if stage == SELFTEST else chosen_runs(graph, [stage])
        except UsageError as error:
            reason = str(error).removeprefix(f"--cell {stage}: ")
            left_out.setdefault(reason, []).append(stage)
    all_runs = list(chain.from_iterable(runs.values()))
    options.study = list(dict.fromkeys(spec.study for spec in all_runs)) or options.study
    data = {graph.data.manifest(spec.dataset) for spec in all_runs} | {graph.data.drawn()}
    hour = Hour(snakemake_arguments(options), options.minutes, graph.project.config.devices)
    models = ", ".join(machine.models) or f"{machine.remark}, so the CPU is measured"
    facts = f"{host.cores_granted()} cores, {host.memory_gib():.0f} GiB of memory; {models}"
    hour.show("ok", "facts", f"{platform.node()}: {facts}")
    hour.run("doctor", ["doctor"])
    hour.run("data", ["run", *sorted(data), "--quiet"])
    for stage, specs in runs.items():
        hour.run(stage, ["run", "--cell", stage] if specs else [SELFTEST], specs)
    if hour.no_time:
        words = ["run"]
        for stage in hour.no_time:
            if runs.get(stage):
                words += ["--cell", stage]
        if words == ["run"]:
            words = [SELFTEST]
        command = command_text(*words, *snakemake_arguments(options))
        hour.show("no time", ", ".join(hour.no_time), f"later: {command}")
    for reason, stages in left_out.items():
        hour.show("left out", ", ".join(stages), reason)
    if hour.is_stopped:  # the report of the stage that was stopped is missing
        report_on_what_exists(graph, only_some=True)
    if Path(paths.PAGE).is_file():
        show(Path(paths.PAGE))
    print(f"The lines above: {STATUS}; what each command printed: {LOGS}/")
    return STOPPED if hour.is_stopped else int(hour.has_failed)


class Hour:
    """The stages, one after another, until the time is over."""

    def __init__(self, choices: Sequence[str], minutes: float, devices: Sequence[str]) -> None:
        self.has_failed = self.is_stopped = False
        self.no_time: list[str] = []
        """The stages that were not started."""
        self._choices = choices
        self._minutes = minutes
        self._devices = devices
        self._start_s = time.monotonic()
        self._quickest_s = 0.0
        self._lines: list[str] = []

    def show(self, outcome: str, stage: str, about: str) -> None:
        """Print the line of a stage, and write all lines."""
        line = f"{time.monotonic() - self._start_s:4.0f} s  {outcome:<12}{stage}: {about}"
        print(line, flush=True)
        self.has_failed |= outcome == "failed"
        self._lines.append(line)
        write_text(STATUS, "\n".join(self._lines) + "\n")

    def run(self, stage: str, words: Sequence[str], specs: Sequence[RunSpec] = ()) -> None:
        """Run a command of feedrate until the time is over, if the quickest cell so far would fit;
        `specs` are the runs of its cell."""
        begin_s = time.monotonic()
        since_s = time.time()
        left_s = self._start_s + self._minutes * 60 - RESERVE_S - begin_s
        if left_s <= self._quickest_s:
            self.no_time.append(stage)
            return
        if stage == SELFTEST:
            minutes = min(left_s / 60, self._minutes * SELFTEST_SHARE) / len(self._devices)
            words = [*words, "--minutes", f"{minutes:.3g}"]
        log = LOGS / f"{stage.replace(':', ' ')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "feedrate", *words, *self._choices]
        try:
            code, text = run_for(command, log, left_s)
        except KeyboardInterrupt:
            self.is_stopped, self._minutes = True, 0.0  # no time for the next stages
            self.show("stopped", stage, "by Ctrl-C or another signal")
            return
        last = text.splitlines()[-1:]
        if code is None:
            self.show("stopped", stage, " ".join(["the time was over;", *last]))
            return
        several = len({spec.device for spec in specs}) > 1
        results = [result_of(spec, since_s, with_device=several) for spec in specs]
        lines = list(filter(None, results))
        outcome = "failed" if code else "ok"
        if lines and all("provisional" in line for line in lines):
            outcome = "provisional"
        if not lines and stage in SHOWN:
            lines = re.findall(SHOWN[stage], text, re.MULTILINE)
        self.show(outcome, stage, "; ".join(dict.fromkeys(lines or last)))
        if specs:
            took_s = time.monotonic() - begin_s
            self._quickest_s = min(self._quickest_s or took_s, took_s)


def run_for(command: Sequence[str], log: Path, limit_s: float) -> tuple[int | None, str]:
    """Run a command with its output in `log`; return its exit code, None if `limit_s` was over, and
    its output until then. It is stopped as by Ctrl-C, so that its jobs end too, on a cluster also.
    """
    code = None
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=die_with_parent) as process,
    ):
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit_s)
            return code, log.read_text(encoding="utf-8", errors="replace").rstrip()
        finally:
            process.send_signal(signal.SIGINT)  # if it has not ended
            # Another signal cuts the wait short.
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(STOP_S)
            process.kill()


def result_of(spec: RunSpec, since_s: float, *, with_device: bool) -> str:
    """The result of a run's cell in a phrase; empty if no results were made since `since_s`."""
    file = Path(paths.CELLS_CSV.format(study=spec.study))
    if not file.is_file() or file.stat().st_mtime < since_s:
        return ""
    place = (spec.device, spec.cell)
    rows = (row for row in read_csv(file, CELLS) if (row["device"], row["cell"]) == place)
    row = next(rows, None)
    if row is None:
        return ""
    device = f"{spec.device}: " if with_device else ""
    rate = row["samples_per_s"] or row["provisional_samples_per_s"]
    if rate is None:
        return f"{device}{row['status']}: {row['cause']}"
    if row["samples_per_s"] is None:
        return f"{device}{number(rate)} samples/s, provisional: {row['cause']}"
    text = f"{device}{number(rate)} samples/s, MFU {share(row['mfu'])}"
    low, high = row["gain_low"], row["gain_high"]
    if low is None or high is None:
        return text
    return f"{text}, a faster loader gains {bounds(low, high)}"
