"""Data: fetch and prepare datasets, fetch Winoground and the weights to start from."""


rule fetch_dataset:
    """Fetch a dataset's images and rows, with a checksum for every file."""
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
        "python -m feedrate fetch-dataset --name {wildcards.dataset} "
        "--settings {params.fetch[settings]:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule fetch_winoground:
    """Fetch a copy of Winoground, or draw its stand-in, with a checksum for every image."""
    output:
        paths.WINOGROUND,
    log:
        f"{paths.LOGS}/fetch_winoground/{{winoground}}.log",
    benchmark:
        f"{paths.LOGS}/fetch_winoground/{{winoground}}.tsv"
    localrule: DOWNLOADS_ARE_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        fetch=lambda wc: VIEW.fetching_winoground(wc.winoground),
    shell:
        "python -m feedrate fetch-winoground --name {wildcards.winoground} "
        "--settings {params.fetch[settings]:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule fetch_checkpoint:
    """Fetch a hub checkpoint's weights and tokenizer, with a checksum for every file."""
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
        "python -m feedrate fetch-checkpoint --name {params.fetch[settings][name]:q} "
        "--revision {params.fetch[settings][revision]:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule preprocess_dataset:
    """Verify every image; convert those that can be converted, and list those left out."""
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
        "python -m feedrate preprocess-dataset --index {input:q} "
        "--settings {params.prepare[settings]:q} --out {output.manifest:q} 2> >(tee {log:q} >&2)"


rule store_dataset:
    """Decode, resize and tokenise the data once, for runs with `loader.decode: cache`."""
    input:
        data=paths.MANIFEST,
        weights=lambda wc: VIEW.inputs.checkpoints_of_store(wc.store),
    output:
        paths.STORE,
    log:
        f"{paths.LOGS}/store_dataset/{{dataset}}.{{store}}.log",
    benchmark:
        f"{paths.LOGS}/store_dataset/{{dataset}}.{{store}}.tsv"
    conda:
        "../../envs/cpu.yaml"
    threads: CORES
    params:
        store=lambda wc: VIEW.storing(wc.store),
    shell:
        "python -m feedrate store-dataset --data {input.data:q} "
        "--settings {params.store[settings]:q} --out {output:q} 2> >(tee {log:q} >&2)"
