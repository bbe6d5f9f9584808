"""Shared by all rules: the checked configuration, the plan, and the state of this driver."""

import re
from pathlib import Path

from snakemake.exceptions import WorkflowError

from feedrate.config import errors, plan
from feedrate.core import paths, plugins
from feedrate.devices import detect
from feedrate.flow import driver
from feedrate.flow.runs import signed
from feedrate.flow.view import PlanView
from feedrate.results.expression import check_claims

try:
    PROJECT = plan.load_project(Path(workflow.basedir), config, detect.machine)
    for name, study in PROJECT.studies.items():
        check_claims(name, study, PROJECT.devices)
    VIEW = PlanView(PROJECT, Path(workflow.basedir))
except errors.ConfigError as error:
    raise WorkflowError(str(error)) from None
STUDIES = list(PROJECT.studies)
# All cores of the machine; on a cluster a profile's `cpus_per_task` sets the number.
CORES = workflow.resource_settings.cores or 8
SHORT_IS_LOCAL = "short" in PROJECT.config.on_driver
DOWNLOADS_ARE_LOCAL = "downloads" in PROJECT.config.on_driver

if workflow.is_main_process and not workflow.output_settings.dryrun:
    driver.hold()
driver.equip_jobs(Path(workflow.basedir) / "workflow", PROJECT)


wildcard_constraints:
    study="|".join(map(re.escape, STUDIES)),
    device="|".join(map(re.escape, PROJECT.config.devices)),
    dataset="|".join(map(re.escape, PROJECT.config.datasets)),
    winoground="|".join(map(re.escape, PROJECT.config.winoground_sets)) or "none",
    checkpoint="[^/]+",
    cell="[^/]+",
    store="[0-9a-f]+",
    repeat=r"\d+",
    table="[^/]+",
    figure="[^/]+",
