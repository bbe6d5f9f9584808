"""`python -m feedrate doctor`: what this machine offers, and what each study would lack on it."""

import argparse
import copy
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
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


ASKED = ("slurm_account", "slurm_partition", "qos", "gres", "constraint", "nodes", "slurm_extra")
"""The resources of a profile with which Slurm is asked for a job."""


def doctor(options: argparse.Namespace) -> int:
    """Print all findings; return 1 if something will fail for a configured study and device."""
    profile = configuration.read_profile(options.profile)
    here = profile.executor in ("", "local") or slurm.JOB_ID in os.environ
    layers = layers_of(options, profile)
    try:
        configuration.load(Path(), layers)
    except ConfigError as error:
        show(output(), [_wrong(error)])
        return 1
    configured = set(layers.values["studies"])
    devices = layers.values["devices"]
    found = list(_of_devices(options, profile, devices, here=here))
    if not options.device and DETECTED not in devices and host.machine().models:
        found += (f for f in _of_devices(options, profile, [DETECTED], here=True) if f not in found)
    show(output(), found)
    bound = (one for one in found if one.outlook == FAILS)
    return int(any(not one.studies or configured & set(one.studies) for one in bound))


def _of_devices(
    options: argparse.Namespace, profile: Profile, devices: list[str], *, here: bool
) -> Iterator[Finding]:
    """The findings about the studies of the call, by default all, on some devices."""
    wider = copy.copy(options)
    wider.study, wider.device = options.study or study_names(Path()), devices
    try:
        project = configuration.load(Path(), layers_of(wider, profile))
        plan = runnable(project, make_plan(project))
    except ConfigError as error:
        yield _wrong(error)
        return
    found = examine(project, plan.runs.values(), here=here)
    if not here:
        found += _slurm(project, profile)
    yield from found
    yield from _studies(project, plan, found)


def _wrong(error: ConfigError) -> Finding:
    return Finding(FAILS, "configuration", str(error), "correct it; nothing else was examined")


def _studies(project: Project, plan: Plan, found: Sequence[Finding]) -> Iterator[Finding]:
    """For each study and device, the runs that it has and what they lack."""
    runs = Counter((study, device) for study, device, *_ in plan.runs)
    for device in project.config.devices:
        prefix = f"{device}: "
        faults = [f for f in found if f.outlook == FAILS and f.subject.startswith(prefix)]
        for study in project.studies:
            bound = [
                fault.subject.removeprefix(prefix)
                for fault in faults
                if study in (fault.studies or [study])
            ]
            own = (study, device)
            text = counted(runs[own], "run")
            if absent := [cell for cell in plan.unsupported if (cell.study, cell.device) == own]:
                needs = sorted({need for cell in absent for need in cell.lacks.split(", ")})
                text += f"; {counted(len(absent), 'cell')} not supported ({', '.join(needs)})"
            if bound:
                text += f"; look at: {', '.join(bound)}"
            outlook = FAILS if bound else FINE
            yield Finding(outlook, f"{study} on {device}", text, studies=[study])


def _slurm(project: Project, profile: Profile) -> Iterator[Finding]:
    """Whether Slurm is here, and takes a job for the partition and gres of each device."""
    if not slurm.is_installed():
        use = "run it on a login node, or use a profile for one machine"
        yield Finding(FAILS, "Slurm", "there is no sbatch here", use)
        return
    try:
        slurm.ask("sinfo", "--noheader")
    except slurm.SlurmError as error:
        yield Finding(UNKNOWN, "Slurm", f"sinfo: {error}", "ask again when Slurm answers")
        return
    found = profile.values.get("set-resources")
    set_resources = found if isinstance(found, dict) else {}
    for name in project.config.devices:
        rule, entry = paths.rule_of(paths.TRAIN_RULE, name), project.devices[name]
        asked = {"gres": entry.job.gres, "constraint": entry.job.constraint, "nodes": entry.nodes}
        for given in (profile.values.get("default-resources"), set_resources.get(rule)):
            if isinstance(given, dict):
                asked |= {k: v for k, v in given.items() if k in ASKED}
        words = driver.request(asked)
        if problem := driver.refusal(words, str(asked["gres"] or "")):
            use = f"set it under {rule} in the profile's config.yaml (sinfo -o '%P %G')"
            yield Finding(FAILS, f"{name}: Slurm", problem, use)
        else:
            yield Finding(FINE, f"{name}: Slurm", f"it takes a job with {words}")


def show(console: Console, found: Iterable[Finding]) -> None:
    """Print the findings, those that need an action first, and their number."""
    order = list(STYLES)
    rows = sorted(found, key=lambda one: order.index(one.outlook))
    for one in rows:
        concerned = f" ({', '.join(one.studies)})" if one.studies and one.remedy else ""
        line = Text(f"{one.outlook:<12}  ", STYLES[one.outlook])
        line.append(f"{one.subject}: {one.text}{concerned}", "default")
        console.print(line, soft_wrap=True)
        if one.remedy:
            console.print(Text(f"{'':14}{one.remedy}", "dim"), soft_wrap=True)
    counts = Counter(one.outlook for one in rows)
    console.print(", ".join(f"{counts[name]} {name}" for name in order if counts[name]))
