"""The checked configuration, the graph of the workflow, and its begin and end."""

from pathlib import Path

from feedrate.core import paths, plugins
from feedrate.flow import configuration, driver
from feedrate.flow.data import job
from feedrate.flow.graph import Graph
from feedrate.flow.resources import of_device, training, with_cached_signature

ROOT = Path(workflow.basedir)
with configuration.workflow_errors():
    PROJECT = configuration.load(ROOT, LAYERS)
    GRAPH = Graph(PROJECT, ROOT)
    if IS_DRIVER:
        driver.plan(GRAPH, LAYERS)
# All cores of the machine; on a cluster a profile's `cpus_per_task` sets the number.
CORES = workflow.resource_settings.cores or 8
# Whether failed jobs are tried again. The process of a job does not know, and assumes it.
RETRIED = not IS_DRIVER or bool(configuration.call().retries)
ON_DRIVER = PROJECT.config.on_driver
REPORT_ENV = "../../envs/report.yaml"


def pages(folder, name, suffix):
    """A folder of pages, each with an entry in Snakemake's report."""
    return report(
        directory(folder),
        patterns=[f"{{{name}}}.{suffix}"],
        category=f"{name.title()}s",
        subcategory="{study}",
        labels={name: f"{{{name}}}"},
    )


# Only in the driver, and never in a dry run; Snakemake's options are not known earlier.
onstart:
    with configuration.workflow_errors():
        driver.start(GRAPH, LAYERS)


onsuccess:
    driver.end(GRAPH)


onerror:
    driver.end(GRAPH)


wildcard_constraints:
    **GRAPH.wildcard_constraints(),
