"""Report: tables, figures, and the first page, which answers the question.

There is one rule for each kind of table and figure, because a rule has one caption.
"""

CAPTIONS = "../../report/captions"

for caption, names in VIEW.captions("tables"):

    rule:
        name:
            caption.replace("table", "tabulate", 1)
        input:
            lambda wc: VIEW.inputs_of(wc.study, VIEW.table(wc.study, wc.table)),
        output:
            report(
                paths.TABLE,
                caption=f"{CAPTIONS}/{caption}.rst",
                category="Tables",
                subcategory="{study}",
                labels={"table": "{table}"},
            ),
        log:
            f"{paths.LOGS}/tabulate/{{study}}.{{table}}.log",
        wildcard_constraints:
            table=names,
        localrule: SHORT_IS_LOCAL
        conda:
            "../../envs/report.yaml"
        params:
            table=lambda wc: VIEW.tabulating(wc.study, wc.table),
        shell:
            "python -m feedrate.report.table --settings {params.table[settings]:q} "
            "--out {output:q} {input:q} 2> >(tee {log:q} >&2)"


for caption, names in VIEW.captions("figures"):

    rule:
        name:
            caption.replace("figure", "plot", 1)
        input:
            lambda wc: VIEW.inputs_of(wc.study, VIEW.figure(wc.study, wc.figure)),
        output:
            report(
                paths.FIGURE,
                caption=f"{CAPTIONS}/{caption}.rst",
                category="Figures",
                subcategory="{study}",
                labels={"figure": "{figure}"},
            ),
        log:
            f"{paths.LOGS}/plot/{{study}}.{{figure}}.log",
        wildcard_constraints:
            figure=names,
        localrule: SHORT_IS_LOCAL
        conda:
            "../../envs/report.yaml"
        params:
            figure=lambda wc: VIEW.plotting(wc.study, wc.figure),
        shell:
            "python -m feedrate.report.figure --settings {params.figure[settings]:q} "
            "--out {output:q} {input:q} 2> >(tee {log:q} >&2)"


rule write_overview:
    """Write the first page: the answer in words and one picture, then the details."""
    input:
        results=[
            paths.of_all_studies(path)
            for path in (
                paths.RESULTS_CSV,
                paths.CELLS_CSV,
                paths.CLAIMS_CSV,
                paths.FIT_CSV,
            )
        ],
        scores=[page for study in STUDIES for page in VIEW.scored.table(study)],
        pages=[page for study in STUDIES for page in VIEW.pages(study)],
        data=paths.DATA_REPORT.format(dataset=PROJECT.config.dataset),
        captions=[
            f"report/captions/{caption}.rst"
            for part in ("tables", "figures")
            for caption, _ in VIEW.captions(part)
        ],
    output:
        paths.OVERVIEW,
    log:
        f"{paths.LOGS}/write_overview.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        overview=VIEW.overview(),
    shell:
        "python -m feedrate.report.overview --settings {params.overview[settings]:q} "
        "--out {output:q} {input:q} 2> >(tee {log:q} >&2)"


rule confirm_results:
    """Fail with a short list if a run failed; runs last, so that the report exists."""
    input:
        results=paths.of_all_studies(paths.RESULTS_CSV),
        quality=[page for study in STUDIES for page in VIEW.scored.table(study)],
        after=paths.OVERVIEW,
    output:
        paths.CONFIRMED,
    log:
        f"{paths.LOGS}/confirm_results.log",
    # A profile's retries would only print the list again.
    retries: 0
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    shell:
        "python -m feedrate.results.confirm --results {input.results:q} "
        "--quality {input.quality:q} --out {output:q} 2> >(tee {log:q} >&2)"
