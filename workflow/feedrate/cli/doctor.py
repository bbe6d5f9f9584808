"""`python -m feedrate doctor`: what this machine offers, and what each study would lack on it."""

import argparse
import copy
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.text import Text

from feedrate.cli.display import output
from feedrate.cli.run import layers_of
from feedrate.config.devices import DETECTED
from feedrate.config.errors import ConfigError
from feedrate.config.plan import Plan, make_plan, runnable
from feedrate.config.project import Project, study_names
from feedrate.core import paths, slurm
from feedrate.devices import host
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Finding, examine
from feedrate.flow import configuration, driver
from feedrate.flow.configuration import Profile
from feedrate.report.text import counted

STYLES = {FAILS: "bold red", SLOW: "yellow", UNKNOWN: "cyan", FINE: "green"}
"""The outlooks in the order in which they are shown."""


def doctor(options: argparse.Namespace) -> int:
    """Print all findings; return 1 if something will fail for a configured study and device."""
    profile = configuration.read_profile(options.profile)
    layers, findings = layers_of(options, profile), []
    try:
        configuration.load(Path(), layers)
        devices = layers.values["devices"]
        here = profile.executor in ("", "local") or slurm.JOB_ID in os.environ
        findings += _of_devices(options, profile, devices, here=here)
        if not options.device and DETECTED not in devices and host.machine().models:
            more = _of_devices(options, profile, [DETECTED], here=True)
            findings += [one for one in more if one not in findings]
    except ConfigError as error:
        use = "correct it; nothing else was examined"
        findings.append(Finding(FAILS, "configuration", str(error), use))
    _show(findings)
    bound = [one.studies for one in findings if one.outlook == FAILS]
    return int(any(not names or set(names) & set(layers.values["studies"]) for names in bound))


def _of_devices(
    options: argparse.Namespace, profile: Profile, devices: list[str], *, here: bool
) -> list[Finding]:
    """The findings about the studies of the call, by default all, on some devices."""
    wider = copy.copy(options)
    wider.study, wider.device = options.study or study_names(Path()), devices
    project = configuration.load(Path(), layers_of(wider, profile))
    plan = runnable(project, make_plan(project))
    findings = examine(project, plan.runs.values(), here=here)
    if not here:
        findings += _slurm(project, profile)
    return [*findings, *_studies(project, plan, findings)]


def _studies(project: Project, plan: Plan, findings: Sequence[Finding]) -> Iterator[Finding]:
    """For each study and device, the runs that it has and what they lack."""
    runs = Counter((study, device) for study, device, *_ in plan.runs)
    for device in project.config.devices:
        for study in project.studies:
            text = counted(runs[study, device], "run")
            own = (study, device)
            if absent := [cell for cell in plan.unsupported if (cell.study, cell.device) == own]:
                needs = sorted({need for cell in absent for need in cell.lacks.split(", ")})
                text += f"; {counted(len(absent), 'cell')} not supported ({', '.join(needs)})"
            faults = [
                one.subject.removeprefix(f"{device}: ")
                for one in findings
                if one.outlook == FAILS
                and one.subject.startswith(f"{device}: ")
                and study in (one.studies or [study])
            ]
            if faults:
                text += f"; look at: {', '.join(faults)}"
            outlook = FAILS if faults else FINE
            yield Finding(outlook, f"{study} on {device}", text, studies=[study])


def _slurm(project: Project, profile: Profile) -> Iterator[Finding]:
    """Whether Slurm is here, and has what the training jobs of each device ask for."""
    if not slurm.is_installed():
        use = "run it on a login node, or use a profile for one machine"
        yield Finding(FAILS, "Slurm", "there is no sbatch here", use)
        return
    try:
        nodes = slurm.nodes()
    except slurm.SlurmError as error:
        yield Finding(UNKNOWN, "Slurm", f"sinfo: {error}", "ask again when Slurm answers")
        return
    by_rule = profile.values.get("set-resources")
    for name in project.config.devices:
        rule, entry = paths.rule_of(paths.TRAIN_RULE, name), project.devices[name]
        asked = {"gres": entry.job.gres, "constraint": entry.job.constraint, "nodes": entry.nodes}
        own = by_rule.get(rule) if isinstance(by_rule, dict) else None
        for given in (profile.values.get("default-resources"), own):
            if isinstance(given, dict):  # numbers may be expressions, which Snakemake evaluates
                asked |= {key: value for key, value in given.items() if key in driver.WORDS}
        problem = driver.refusal(asked, nodes)
        text = problem or f"partition {asked.get('slurm_partition') or 'by default'} has such nodes"
        use = f"set it under {rule} in the profile's config.yaml (sinfo -o '%P %G')"
        yield Finding(FAILS if problem else FINE, f"{name}: Slurm", text, use)


def _show(findings: Iterable[Finding]) -> None:
    """Print the findings, those that need an action first, and their number."""
    console, order = output(), list(STYLES)
    rows = sorted(findings, key=lambda one: order.index(one.outlook))
    for one in rows:
        is_bad = one.outlook != FINE and one.remedy
        concerned = f" ({', '.join(one.studies)})" if one.studies and is_bad else ""
        line = Text(f"{one.outlook:<12}  ", STYLES[one.outlook])
        line.append(f"{one.subject}: {one.text}{concerned}", "default")
        console.print(line, soft_wrap=True)
        if is_bad:
            console.print(Text(f"{'':14}{one.remedy}", "dim"), soft_wrap=True)
    counts = Counter(one.outlook for one in rows)
    console.print(", ".join(f"{counts[name]} {name}" for name in order if counts[name]))
