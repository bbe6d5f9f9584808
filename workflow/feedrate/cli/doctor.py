"""`python -m feedrate doctor`: what this machine offers, and what each study would lack on it."""

import argparse
import copy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from feedrate.cli.display import output
from feedrate.cli.snakemake import add_choices, is_local, layers_of, load_project
from feedrate.config.devices import DETECTED
from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan, runnable
from feedrate.config.project import Project, study_names
from feedrate.core import scheduler
from feedrate.devices import host
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Finding, examine
from feedrate.flow import configuration, resources

STYLES = {FAILS: "bold red", SLOW: "yellow", UNKNOWN: "cyan", FINE: "green"}
"""The outlooks in the order in which they are shown."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)


def doctor(options: argparse.Namespace) -> int:
    """Print all findings; return 1 if something will fail for a configured study and device."""
    layers, findings = layers_of(options), []
    try:
        configuration.load(Path(), layers)
        devices = layers.values["devices"]
        runs_here = is_local(options) or bool(scheduler.this_job())
        findings += _of_devices(options, devices, runs_here=runs_here)
        if not options.device and DETECTED not in devices and host.machine().models:
            findings_here = _of_devices(options, [DETECTED], runs_here=True)
            findings += [finding for finding in findings_here if finding not in findings]
    except ConfigError as error:
        remedy = "correct it; nothing else was examined"
        findings.append(Finding(FAILS, "configuration", str(error), remedy))
    _show(findings)
    failing = [finding.studies for finding in findings if finding.outlook == FAILS]
    # A finding without studies is about all of them, and a wrong configuration may have none.
    return int(any(not names or set(names) & set(layers.values["studies"]) for names in failing))


def _of_devices(
    options: argparse.Namespace, devices: list[str], *, runs_here: bool
) -> list[Finding]:
    """The findings about the studies of the call, by default all, on some devices."""
    all_studies = copy.copy(options)
    all_studies.study = options.study or study_names(Path())
    all_studies.device = devices
    project = load_project(all_studies)
    specs = runnable(project, make_plan(project)).runs.values()
    findings = examine(project, specs, runs_here=runs_here)
    return findings if runs_here else [*findings, *_scheduler(project, options.profile)]


def _scheduler(project: Project, profile: str) -> list[Finding]:
    """Whether the scheduler is here, and has what the training jobs of each device ask for."""
    name = scheduler.NAME
    if reason := scheduler.why_absent():
        remedy = "run it on a login node, or use a profile for one machine"
        return [Finding(FAILS, name, reason, remedy)]
    options = configuration.snakemake_options(["--profile", profile])
    try:
        problems = resources.problems(options, project, project.config.devices)
    except scheduler.SchedulerError as error:
        return [Finding(UNKNOWN, name, f"{error}", f"ask again when {name} answers")]
    if not problems:
        return [Finding(FINE, name, f"it takes jobs of {', '.join(project.config.devices)}")]
    remedy = "set it under this rule in the profile's config.yaml (sinfo -o '%P %G')"
    return [Finding(FAILS, name, problem, remedy) for problem in problems]


def _show(findings: Sequence[Finding]) -> None:
    """Print the findings, those that need an action first, and their number."""
    console = output()
    order = list(STYLES)
    counts = Counter(finding.outlook for finding in findings)
    for finding in sorted(findings, key=lambda finding: order.index(finding.outlook)):
        is_bad = finding.outlook != FINE and finding.remedy
        studies = f" ({', '.join(finding.studies)})" if finding.studies and is_bad else ""
        line = Text(f"{finding.outlook:<12}  ", STYLES[finding.outlook])
        line.append(f"{finding.subject}: {finding.text}{studies}", "default")
        console.print(line, soft_wrap=True)
        if is_bad:
            console.print(Text(f"{'':14}{finding.remedy}", "dim"), soft_wrap=True)
    console.print(", ".join(f"{counts[name]} {name}" for name in order if counts[name]))
