"""feedrate: how fast can an accelerator be fed and trained, and is the published number true?"""

from snakemake.utils import min_version

min_version("9.20")


configfile: "config/config.yaml"


report: "report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/report.smk"


rule all:
    """All studies of config/config.yaml: records, results, claims, tables, figures, first page."""
    default_target: True
    input:
        paths.of_all_studies(paths.RESULTS_CSV),
        paths.of_all_studies(paths.CLAIMS_CSV),
        paths.OVERVIEW,
        paths.CONFIRMED,


# Each study is a target of its own name: its runs, results, claims, tables and figures alone.
for study in STUDIES:

    rule:
        name:
            study
        input:
            VIEW.pages(study),
            paths.CLAIMS_CSV.format(study=study),
