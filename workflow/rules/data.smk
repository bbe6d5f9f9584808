"""Datasets: fetched, then verified and prepared."""


rule fetch_dataset:
    """Bring a dataset's images and rows, with a checksum for every file."""
    output:
        paths.RAW_INDEX,
    log:
        f"{paths.LOGS}/fetch_dataset/{{dataset}}.log",
    benchmark:
        f"{paths.LOGS}/fetch_dataset/{{dataset}}.tsv"
    localrule: DOWNLOADS_ARE_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        fetch=lambda wc: VIEW.fetching(wc.dataset),
    shell:
        "python -m feedrate.data.fetch --name {wildcards.dataset} "
        "--settings {params.fetch[settings]:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule preprocess_dataset:
    """Verify every image, convert what can be converted, list what is left out, count the rest."""
    input:
        paths.RAW_INDEX,
    output:
        manifest=paths.MANIFEST,
        report=paths.DATA_REPORT,
    log:
        f"{paths.LOGS}/preprocess_dataset/{{dataset}}.log",
    benchmark:
        f"{paths.LOGS}/preprocess_dataset/{{dataset}}.tsv"
    conda:
        "../../envs/report.yaml"
    threads: CORES
    params:
        prepare=lambda wc: VIEW.preparing(wc.dataset),
    shell:
        "python -m feedrate.data.prepare --index {input:q} "
        "--settings {params.prepare[settings]:q} --out {output.manifest:q} 2> >(tee {log:q} >&2)"
