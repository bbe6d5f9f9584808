"""Datasets: fetched, then verified and prepared; and weights to start from."""


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


rule fetch_checkpoint:
    """Bring a hub checkpoint's weights and tokenizer, with a checksum for every file."""
    output:
        paths.CHECKPOINT,
    log:
        f"{paths.LOGS}/fetch_checkpoint/{{checkpoint}}.log",
    benchmark:
        f"{paths.LOGS}/fetch_checkpoint/{{checkpoint}}.tsv"
    localrule: DOWNLOADS_ARE_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        fetch=lambda wc: VIEW.fetching_checkpoint(wc.checkpoint),
    shell:
        "python -m feedrate.data.fetch_checkpoint --name {params.fetch[settings][name]:q} "
        "--revision {params.fetch[settings][revision]:q} --out {output:q} 2> >(tee {log:q} >&2)"


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
