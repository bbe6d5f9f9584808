"""Report: runs become records, results, claims, tables, figures and the first page. Time
stamps of code, templates and a file with the study's configuration decide what is made again.
"""


rule parse_logs:
    """Turn the raw logs of runs into checked records."""
    input:
        lambda wc: GRAPH.outcomes(wc.study, wc.device, ended=not IS_DRIVER),
        plan=paths.STUDY_PLAN,
        code=GRAPH.code("results/assemble.py"),
    output:
        [paths.RECORDS, paths.DISTURBED],
    log:
        f"{paths.LOGS}/parse_logs/{{study}}.{{device}}.log",
    localrule: "short" in ON_DRIVER
    conda:
        REPORT_ENV
    params:
        job=lambda wc: job("parse_logs", device=wc.device),
    shell:
        "python -m feedrate {params.job} --plan {input.plan:q} "
        "--results results/{wildcards.study} 2> >(tee {log:q} >&2)"


# Collect a study's runs into one table, and summarise their repeats as cells.
use rule parse_logs as collect_results with:
    input:
        lambda wc: GRAPH.records(wc.study),
        plan=paths.STUDY_PLAN,
        code=GRAPH.code("results/collect.py"),
    output:
        [paths.RESULTS_CSV, paths.RESULTS_PARQUET, paths.CELLS_CSV, paths.ANSWERS_CSV],
    log:
        f"{paths.LOGS}/collect_results/{{study}}.log",
    localrule: "short" in ON_DRIVER
    params:
        job="collect_results",


# Check the source's claims against its own numbers and against ours.
use rule parse_logs as check_claims with:
    input:
        paths.RESULTS_CSV,
        plan=paths.STUDY_PLAN,
        code=GRAPH.code("results/claims.py"),
    output:
        paths.CLAIMS_CSV,
    log:
        f"{paths.LOGS}/check_claims/{{study}}.log",
    localrule: "short" in ON_DRIVER
    params:
        job="check_claims",


# Write all tables of a study as pages.
use rule parse_logs as tabulate_results with:
    input:
        **GRAPH.page_inputs(),
    output:
        pages(paths.TABLES, "table", "html"),
    log:
        f"{paths.LOGS}/tabulate_results/{{study}}.log",
    localrule: "short" in ON_DRIVER
    params:
        job="tabulate_results",


# Draw all figures of a study.
use rule parse_logs as plot_figures with:
    input:
        **GRAPH.page_inputs(),
    output:
        pages(paths.FIGURES, "figure", "svg"),
    log:
        f"{paths.LOGS}/plot_figures/{{study}}.log",
    localrule: "short" in ON_DRIVER
    params:
        job="plot_figures",


rule write_report:
    """Merge the results of all studies, and write report.html: the answers, then the details."""
    input:
        expand(paths.OF_A_STUDY, study=PROJECT.studies),
        data=[ancient(GRAPH.data.report(study)) for study in PROJECT.studies],
        plans=expand(paths.STUDY_PLAN, study=PROJECT.studies),
        templates=GRAPH.templates(),
        code=GRAPH.page_code(),
    output:
        paths.OF_ALL_STUDIES,
        page=report(paths.PAGE, category="Page", labels={"page": "answers"}),
    log:
        f"{paths.LOGS}/write_report.log",
    localrule: "short" in ON_DRIVER
    conda:
        REPORT_ENV
    shell:
        "python -m feedrate write_report --plans {input.plans:q} --results results "
        "--page {output.page:q} 2> >(tee {log:q} >&2)"


rule confirm_results:
    """Fail with a short list if a run failed; runs last, so that the report exists."""
    input:
        results=expand(paths.RESULTS_CSV, study=PROJECT.studies),
        after=paths.PAGE,
    output:
        paths.CONFIRMED,
    log:
        f"{paths.LOGS}/confirm_results.log",
    # A profile's retries would only print the list again.
    retries: 0
    localrule: "short" in ON_DRIVER
    conda:
        REPORT_ENV
    shell:
        "python -m feedrate confirm_results --results {input.results:q} --out {output:q} "
        "2> >(tee {log:q} >&2)"
