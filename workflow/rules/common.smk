"""The checked configuration, the graph of the workflow, and its begin and end."""

import re
import sys
from pathlib import Path

from feedrate.core import paths, plugins
from feedrate.flow import configuration, driver
from feedrate.flow.graph import Graph
from feedrate.flow.resources import with_cached_signature

ROOT = Path(workflow.basedir)
with configuration.workflow_errors():
    PROJECT = configuration.load(ROOT, LAYERS)
    GRAPH = Graph(PROJECT, ROOT)
    if IS_DRIVER:
        configuration.check_targets(ROOT, PROJECT, LAYERS, configuration.call().targets)
if IS_DRIVER:
    GRAPH.write_plans()
STUDIES = list(PROJECT.studies)
# All cores of the machine; on a cluster a profile's `cpus_per_task` sets the number.
CORES = workflow.resource_settings.cores or 8
# Whether failed jobs are tried again. The process of a job does not know, and assumes it.
RETRIED = not IS_DRIVER or configuration.call().retries > 0
SHORT_IS_LOCAL = "short" in PROJECT.config.on_driver
DOWNLOADS_ARE_LOCAL = "downloads" in PROJECT.config.on_driver
REPORT_ENV = "../../envs/report.yaml"


def check_files():
    """Before the first job, and in a dry-run: the files that the configuration names exist."""
    with configuration.workflow_errors():
        here = configuration.call().is_local
        configuration.check_files(PROJECT, GRAPH.runs_to_do(), LAYERS, here=here)


# Only in the driver, and never in a dry run; Snakemake's options are not known earlier.
onstart:
    check_files()
    with configuration.workflow_errors():
        driver.start(configuration.call(), ROOT / "workflow")
        driver.check(PROJECT, GRAPH.runs_to_do(), configuration.call())


onsuccess:
    driver.release()


onerror:
    driver.release()
    if lost := [run for run in GRAPH.all_outcomes() if not Path(run).is_file()]:
        command = driver.report_command(configuration.call())
        print(
            f"{len(lost)} runs have no result; the same command measures them. "
            f"For a report of what there is: {command}",
            file=sys.stderr,
        )


wildcard_constraints:
    study="|".join(map(re.escape, STUDIES)),
    device="|".join(map(re.escape, PROJECT.config.devices)),
    # A generated one may be named with its rows: generated-7680.
    dataset="(" + "|".join(map(re.escape, PROJECT.config.datasets)) + r")(-\d+)?",
    winoground="|".join(map(re.escape, PROJECT.config.winoground_sets)) or "none",
    checkpoint="[^/]+",
    cell="[^/]+",
    store="[0-9a-f]{8}",
    # Of a run, a second attempt and later ones have a number: ab12cd34-2.
    identity=r"[0-9a-f]{8}(-\d+)?",
    repeat=r"\d+",


if IS_DRIVER and workflow.output_settings.dryrun:
    check_files()


rule plan:
    """Show how many runs are to do, for how long and at what cost, as `python -m feedrate plan` does."""
    handover: True
    # Without this, Snakemake grants all memory, and on a cluster that is not a number.
    resources:
        mem_mb=1000,
    params:
        arguments=driver.arguments_without("plan"),
    shell:
        "python -m feedrate plan {params.arguments:q}"
