"""feedrate: how fast can an accelerator be fed and trained, and is the published number true?"""

import gc

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

try:
    from feedrate.flow import configuration, driver, lost
except ImportError as missing:
    raise WorkflowError(
        f"the Python of this Snakemake lacks {missing.name}: start with `make run`, or with "
        "`.venv/bin/snakemake --profile local` after `make setup`"
    ) from None

min_version("9.20")

# Nearly all objects of a plan live as long as the plan. With Python's own thresholds (700, 10, 10),
# looking for garbage among them takes a fifth of the time that 1,000 cells need.
gc.set_threshold(100_000, 50, 50)

PROFILE_FILES = configuration.profile_files(main_process=workflow.is_main_process)
# Read before Snakemake reads the same files, which is less strict and names no line.
with configuration.workflow_errors():
    LAYERS = configuration.of_workflow(workflow, PROFILE_FILES)


configfile: "config/config.yaml"


for file in PROFILE_FILES:

    configfile: file


config.update(LAYERS.values)


report: "report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/selftest.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/report.smk"


CAUSES = lost.Causes()


# Only in the driver, and never in a dry run; Snakemake's options are not known earlier.
onstart:
    driver.check_alone()
    check_files()
    driver.check_machine(
        workflow, PROJECT, VIEW.plan, here=configuration.call().is_local
    )
    driver.check(workflow)
    driver.tell_jobs(workflow)
    CAUSES.listen()


onerror:
    lost.finish(workflow, config, CAUSES)


rule all:
    """All studies of config/config.yaml: records, results, claims, tables, figures, first page."""
    default_target: True
    input:
        paths.of_all_studies(paths.RESULTS_CSV),
        paths.of_all_studies(paths.CLAIMS_CSV),
        paths.OVERVIEW,
        paths.CONFIRMED,


# Each study is a target with its own name: only its runs, results, claims, tables and figures.
for study in STUDIES:

    rule:
        name:
            study
        input:
            VIEW.pages(study),
            paths.CLAIMS_CSV.format(study=study),


rule plan:
    """Show how many runs are to do, for how long and at what cost, as `python -m feedrate plan` does."""
    handover: True
    # Without this, Snakemake grants all memory, and on a cluster that is not a number.
    resources:
        mem_mb=1000,
    params:
        arguments=driver.arguments_without("plan"),
    shell:
        "python -m feedrate plan {params.arguments}"


if workflow.is_main_process and workflow.output_settings.dryrun:
    check_files()
