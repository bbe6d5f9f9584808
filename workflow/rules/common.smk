"""Shared by all rules: the checked configuration, the plan, and the state of this driver."""

import re
from pathlib import Path

from feedrate.core import paths, plugins
from feedrate.flow import configuration, driver
from feedrate.flow.runs import signed
from feedrate.flow.view import PlanView
from feedrate.results import files

ROOT = Path(workflow.basedir)
with configuration.workflow_errors():
    PROJECT = configuration.load(ROOT, LAYERS)
    VIEW = PlanView(PROJECT, ROOT)
    if workflow.is_main_process:
        configuration.check_targets(ROOT, PROJECT, LAYERS, configuration.call().targets)
STUDIES = list(PROJECT.studies)
# All cores of the machine; on a cluster a profile's `cpus_per_task` sets the number.
CORES = workflow.resource_settings.cores or 8
# Whether failed jobs are tried again. The process of a job does not know, and assumes it.
RETRIED = not workflow.is_main_process or configuration.call().retries > 0
SHORT_IS_LOCAL = "short" in PROJECT.config.on_driver
DOWNLOADS_ARE_LOCAL = "downloads" in PROJECT.config.on_driver

if workflow.is_main_process and not workflow.output_settings.dryrun:
    if driver.hold():
        files.remove_damaged(Path(paths.RESULTS))
driver.equip_jobs(Path(workflow.basedir) / "workflow", PROJECT)


def check_files():
    """Before the first job, and in a dry-run: the files that the configuration names exist."""
    with configuration.workflow_errors():
        configuration.check_files(
            PROJECT, VIEW.plan, LAYERS, here=configuration.call().is_local
        )


def outcomes(wildcards):
    """The outcomes of a study's runs on a device; Snakemake makes stale files again."""
    if workflow.is_main_process:
        workflow.dag.forcefiles |= VIEW.stale(wildcards.study, wildcards.device)
    return VIEW.outcomes(wildcards.study, wildcards.device)


wildcard_constraints:
    study="|".join(map(re.escape, STUDIES)),
    device="|".join(map(re.escape, PROJECT.config.devices)),
    # A generated one may be named with its rows: generated-7680.
    dataset="(" + "|".join(map(re.escape, PROJECT.config.datasets)) + r")(-\d+)?",
    winoground="|".join(map(re.escape, PROJECT.config.winoground_sets)) or "none",
    checkpoint="[^/]+",
    cell="[^/]+",
    store="[0-9a-f]+",
    repeat=r"\d+",
    table="[^/]+",
    figure="[^/]+",
