"""feedrate: how fast can an accelerator be fed and trained, and is the published number true?"""

import gc

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

# Nearly all objects of a plan live as long as the plan: looking for garbage takes a fifth of its time.
gc.set_threshold(100_000, 50, 50)

try:
    from feedrate.flow import configuration, driver
except ImportError as missing:
    raise WorkflowError(
        f"the Python of this Snakemake lacks {missing.name}: start with `make run`, or with "
        "`.venv/bin/snakemake --profile local` after `make setup`"
    ) from None

min_version("9.20")

IS_DRIVER = workflow.is_main_process
with configuration.workflow_errors():
    LAYERS = configuration.layers_of(workflow)


configfile: "config/config.yaml"


report: "report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/report.smk"


rule all:
    """All studies of config/config.yaml: runs, results, claims, tables, figures, first page."""
    default_target: True
    input:
        paths.PAGE,
        paths.CONFIRMED,


rule measure:
    """The runs alone."""
    input:
        lambda _: GRAPH.all_outcomes(),


rule selftest:
    """Show what works on each device of config/config.yaml."""
    input:
        expand(paths.SELFTEST, device=PROJECT.config.devices),


# Each study is a target with its own name.
for study in PROJECT.studies:

    rule:
        name:
            study
        input:
            expand([paths.TABLES, paths.FIGURES, paths.CLAIMS_CSV], study=study),
