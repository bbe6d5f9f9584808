"""References between the files of the configuration: what the types cannot see.

Each check returns its findings, a line each: file, key, value, and what is allowed.
"""

import re
from collections.abc import Iterable, Mapping

from feedrate.config.devices import DETECTED, Device, launcher_limit
from feedrate.config.levels import setting_type
from feedrate.config.load import Findings, numbered, problems
from feedrate.config.published import Published
from feedrate.config.settings import MODELS
from feedrate.config.study import Study
from feedrate.config.workflow import Folder, WorkflowConfig
from feedrate.core.errors import SECRET_NAME


def check_config(
    origin: str, config: WorkflowConfig, devices: Mapping[str, Device], studies: Iterable[str]
) -> list[str]:
    """config.yaml against the registry of devices and the studies that there are."""
    found = Findings(origin)
    studies = list(studies)
    for number, name in enumerate(config.studies):
        found.known(f"studies[{number}]", name, studies, "files in config/studies")
    for number, name in enumerate(config.devices):
        if name != DETECTED:
            found.known(f"devices[{number}]", name, devices, "entries of config/devices.yaml")
    found.unique(numbered("studies[{}]", config.studies))
    found.unique(numbered("devices[{}]", config.devices))
    found.known("dataset", config.dataset, config.datasets, "entries of datasets")
    for name, dataset in config.datasets.items():
        if isinstance(dataset, Folder):
            if "caption" not in dataset.columns:
                found.say(f"datasets.{name}.columns.caption", "missing, but required")
            if dataset.validation_share + dataset.test_share >= 1:
                found.say(
                    f"datasets.{name}.validation_share",
                    "with test_share it must stay below 1, or nothing is left to train on",
                )
    if config.winoground is not None:
        sets = config.winoground_sets
        found.known("winoground", config.winoground, sets, "entries of winoground_sets")
    if config.checkpoint_revision is not None and config.checkpoint is None:
        found.say("checkpoint_revision", "it is given, but checkpoint is not")
    if config.checkpoint_model is not None:
        found.known("checkpoint_model", config.checkpoint_model, MODELS, "models")
    return found


def check_devices(origin: str, devices: Mapping[str, Device]) -> list[str]:
    """Each entry of the registry in itself."""
    found = Findings(origin)
    for name, device in devices.items():
        found.unique(numbered(f"{name}.capabilities[{{}}]", device.capabilities))
        found.unique(
            numbered(f"{name}.peaks[{{}}].precision", [peak.precision for peak in device.peaks])
        )
        try:
            re.compile(device.model_pattern or "")
        except re.error as error:
            found.say(
                f"{name}.model_pattern",
                f"{device.model_pattern!r} is not a regular expression ({error})",
            )
        if name == DETECTED:
            found.say(name, "this name stands for what a machine has; choose another")
        if device.variant_of is not None:
            found.known(f"{name}.variant_of", device.variant_of, devices, "entries")
        for variable in device.software.environment:
            if wrong := _variable_fault(variable):
                found.say(f"{name}.software.environment.{variable}", wrong)
        if device.count > (most := launcher_limit(device.launcher, "MAX_PROCESSES")):
            found.say(
                f"{name}.launcher",
                f"{device.launcher!r} starts at most {most:g} process, but count is {device.count}",
            )
        if device.count % device.nodes:
            found.say(
                f"{name}.nodes", f"{device.nodes} nodes cannot share {device.count} devices evenly"
            )
        if device.nodes > (most := launcher_limit(device.launcher, "MAX_NODES")):
            found.say(
                f"{name}.launcher",
                f"{device.launcher!r} starts processes on at most {most:g} node, but nodes is "
                f"{device.nodes}; use srun",
            )
    return found


def _variable_fault(name: str) -> str:
    """Why an environment variable cannot stand in the registry; empty where it can."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return "not a name that an environment variable can have"
    if SECRET_NAME.search(name):
        return "a secret would be told in every record; set it where snakemake is started instead"
    return ""


def check_published(
    origin: str, rows: Iterable[Published], study: Study, devices: Mapping[str, Device]
) -> list[str]:
    """Published rows against the study and the registry. A level need not be one of the study's
    (somebody may have measured 4 workers), but must be one that its setting can have."""
    found = Findings(origin)
    for row in rows:
        found.known(f"row {row.id}: device", row.device, devices, "entries of config/devices.yaml")
        editions = study.source.editions
        found.known(f"row {row.id}: edition", row.edition, editions, "the study's source.editions")
        for factor, level in row.levels.items():
            key = f"row {row.id}: levels"
            if found.known(key, factor, study.factors, "the study's factors"):
                sets = study.factors[factor].sets
                if sets:
                    found += problems(level, setting_type(sets), origin, f"{key}.{factor}")
                else:
                    known = study.factors[factor].levels
                    found.known(f"{key}.{factor}", level, known, "its levels")
    return found
