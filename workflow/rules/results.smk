"""Results: logs become records; records become results and claims."""


rule parse_logs:
    """Turn the raw logs of runs that are new, or whose parser changed, into checked records."""
    input:
        outcomes,
    output:
        paths.RECORDS,
    log:
        f"{paths.LOGS}/parse_logs/{{study}}.{{device}}.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        parse=lambda wc: VIEW.parsing(wc.device),
        runs=lambda wc: VIEW.run_list(wc.study, wc.device),
    shell:
        "python -m feedrate parse-logs --runs-list {params.runs:q} "
        "--device {params.parse[settings]:q} --parser {params.parse[source]} --out {output:q} "
        "2> >(tee {log:q} >&2)"


rule collect_results:
    """Collect a study's runs into one table, and summarise their repeats as cells."""
    input:
        lambda wc: VIEW.parsed(wc.study),
    output:
        runs=paths.RESULTS_CSV,
        parquet=paths.RESULTS_PARQUET,
        cells=paths.CELLS_CSV,
    log:
        f"{paths.LOGS}/collect_results/{{study}}.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        collect=lambda wc: VIEW.collecting(wc.study),
        arguments=lambda wc: VIEW.collect_arguments(wc.study),
    shell:
        "python -m feedrate collect-results @{params.arguments:q} --out-csv {output.runs:q} "
        "--out-parquet {output.parquet:q} --cells {output.cells:q} 2> >(tee {log:q} >&2)"


rule check_claims:
    """Check the source's claims against its own numbers and against ours."""
    input:
        paths.RESULTS_CSV,
    output:
        paths.CLAIMS_CSV,
    log:
        f"{paths.LOGS}/check_claims/{{study}}.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        claims=lambda wc: VIEW.claims(wc.study),
    shell:
        "python -m feedrate judge-claims --results {input:q} "
        "--settings {params.claims[settings]:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule merge_results:
    """Merge the results of all studies."""
    input:
        runs=expand(paths.RESULTS_CSV, study=STUDIES),
        cells=expand(paths.CELLS_CSV, study=STUDIES),
        claims=expand(paths.CLAIMS_CSV, study=STUDIES),
    output:
        runs=paths.of_all_studies(paths.RESULTS_CSV),
        parquet=paths.of_all_studies(paths.RESULTS_PARQUET),
        cells=paths.of_all_studies(paths.CELLS_CSV),
        claims=paths.of_all_studies(paths.CLAIMS_CSV),
    log:
        f"{paths.LOGS}/merge_results.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        merge=VIEW.code_of("merged"),
    shell:
        "python -m feedrate merge-results --runs {input.runs:q} --cells {input.cells:q} "
        "--claims {input.claims:q} --out results 2> >(tee {log:q} >&2)"
