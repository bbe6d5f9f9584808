"""Report: tables, figures, and the first page, which answers the question.

There is one rule for each kind of table and figure, because a rule has one caption.
"""

CAPTIONS = "../../report/captions"

PAGES = (("table", "tabulate", paths.TABLE), ("figure", "plot", paths.FIGURE))

for part, verb, path in PAGES:
    for caption, names in VIEW.captions(f"{part}s"):

        rule:
            name:
                caption.replace(part, verb, 1)
            input:
                lambda wc, part=part: VIEW.inputs_of(wc.study, part, wc[part]),
            output:
                report(
                    path,
                    caption=f"{CAPTIONS}/{caption}.rst",
                    category=f"{part.title()}s",
                    subcategory="{study}",
                    labels={part: f"{{{part}}}"},
                ),
            log:
                f"{paths.LOGS}/{verb}/{{study}}.{{{part}}}.log",
            wildcard_constraints:
                **{part: names},
            localrule: SHORT_IS_LOCAL
            conda:
                "../../envs/report.yaml"
            params:
                page=lambda wc, part=part: VIEW.rendering(wc.study, part, wc[part]),
            shell:
                "python -m feedrate render-page --settings {params.page[settings]:q} "
                "--out {output:q} --inputs {input:q} 2> >(tee {log:q} >&2)"


rule write_overview:
    """Write the first page: the answer in words and one picture, then the details."""
    input:
        results=[
            paths.of_all_studies(path)
            for path in (paths.RESULTS_CSV, paths.CELLS_CSV, paths.CLAIMS_CSV)
        ],
        pages=[page for study in STUDIES for page in VIEW.pages(study)],
        data=paths.DATA_REPORT.format(dataset=VIEW.dataset(STUDIES[0])),
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
        "python -m feedrate write-overview --settings {params.overview[settings]:q} "
        "--out {output:q} --inputs {input:q} 2> >(tee {log:q} >&2)"


rule confirm_results:
    """Fail with a short list if a run failed; runs last, so that the report exists."""
    input:
        results=paths.of_all_studies(paths.RESULTS_CSV),
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
        "python -m feedrate confirm-results --results {input.results:q} --out {output:q} "
        "2> >(tee {log:q} >&2)"
