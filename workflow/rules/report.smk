"""Report: runs become records, results, claims, tables, figures and the first page. Time stamps decide
what is made again: of code, templates, and a file with the configuration of the study.
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
    shell:
        "python -m feedrate {rule} --plan {input.plan:q} --device {wildcards.device} "
        "--results results/{wildcards.study} 2> >(tee {log:q} >&2)"


rule collect_results:
    """Collect a study's runs into one table, and summarise their repeats as cells."""
    input:
        lambda wc: GRAPH.records(wc.study),
        plan=paths.STUDY_PLAN,
        code=GRAPH.code("results/collect.py"),
    output:
        [paths.RESULTS_CSV, paths.RESULTS_PARQUET, paths.CELLS_CSV, paths.ANSWERS_CSV],
    log:
        f"{paths.LOGS}/collect_results/{{study}}.log",
    localrule: "short" in ON_DRIVER
    conda:
        REPORT_ENV
    shell:
        "python -m feedrate {rule} --plan {input.plan:q} --results results/{wildcards.study} "
        "2> >(tee {log:q} >&2)"


# Check the source's claims against its own numbers and against ours.
use rule collect_results as check_claims with:
    input:
        paths.RESULTS_CSV,
        plan=paths.STUDY_PLAN,
        code=GRAPH.code("results/claims.py"),
    output:
        paths.CLAIMS_CSV,
    log:
        f"{paths.LOGS}/check_claims/{{study}}.log",
    localrule: "short" in ON_DRIVER


# Write all tables of a study as pages.
use rule collect_results as tabulate_results with:
    input:
        **GRAPH.page_inputs(),
    output:
        pages(paths.TABLES, "table", "html"),
    log:
        f"{paths.LOGS}/tabulate_results/{{study}}.log",
    localrule: "short" in ON_DRIVER


# Draw all figures of a study.
use rule collect_results as plot_figures with:
    input:
        **GRAPH.page_inputs(),
    output:
        pages(paths.FIGURES, "figure", "svg"),
    log:
        f"{paths.LOGS}/plot_figures/{{study}}.log",
    localrule: "short" in ON_DRIVER


rule write_report:
    """Merge the results of all studies, and write report.html: the answers, then the details."""
    input:
        expand(paths.OF_A_STUDY, study=STUDIES),
        data=[ancient(GRAPH.data.report(study)) for study in STUDIES],
        plans=expand(paths.STUDY_PLAN, study=STUDIES),
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
        "python -m feedrate {rule} --plans {input.plans:q} --results results "
        "--page {output.page:q} 2> >(tee {log:q} >&2)"


rule confirm_results:
    """Fail with a short list if a run failed; runs last, so that the report exists."""
    input:
        results=expand(paths.RESULTS_CSV, study=STUDIES),
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
        "python -m feedrate {rule} --results {input.results:q} --out {output:q} "
        "2> >(tee {log:q} >&2)"
