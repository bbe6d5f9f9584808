"""Data: fetch and prepare datasets, fetch Winoground and the weights to start from."""


rule fetch_dataset:
    """Fetch a dataset's images and rows, with a checksum for every file."""
    output:
        paths.RAW_INDEX,
    log:
        f"{paths.LOGS}/fetch_dataset/{{dataset}}-{{identity}}.log",
    localrule: DOWNLOADS_ARE_LOCAL
    conda:
        REPORT_ENV
    params:
        settings=lambda wc: GRAPH.dataset_settings(wc.dataset),
    shell:
        "python -m feedrate fetch-dataset --name {wildcards.dataset} "
        "--settings {params.settings:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule fetch_winoground:
    """Fetch a copy of Winoground, or draw its stand-in, with a checksum for every image."""
    output:
        paths.WINOGROUND,
    log:
        f"{paths.LOGS}/fetch_winoground/{{winoground}}-{{identity}}.log",
    localrule: DOWNLOADS_ARE_LOCAL
    conda:
        REPORT_ENV
    params:
        settings=lambda wc: GRAPH.examples_settings(wc.winoground),
    shell:
        "python -m feedrate fetch-winoground --name {wildcards.winoground} "
        "--settings {params.settings:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule fetch_checkpoint:
    """Fetch a hub checkpoint's weights and tokenizer, with a checksum for every file."""
    output:
        paths.CHECKPOINT,
    log:
        f"{paths.LOGS}/fetch_checkpoint/{{checkpoint}}.log",
    localrule: DOWNLOADS_ARE_LOCAL
    conda:
        REPORT_ENV
    params:
        checkpoint=lambda wc: GRAPH.checkpoint(wc.checkpoint),
    shell:
        "python -m feedrate fetch-checkpoint --name {params.checkpoint[0]:q} "
        "--revision {params.checkpoint[1]:q} --out {output:q} 2> >(tee {log:q} >&2)"


rule preprocess_dataset:
    """Verify every image; convert those that can be converted, and list those left out."""
    input:
        lambda wc: ancient(GRAPH.raw_index(wc.dataset)),
    output:
        manifest=paths.MANIFEST,
        report=paths.DATA_REPORT,
    log:
        f"{paths.LOGS}/preprocess_dataset/{{dataset}}-{{identity}}.log",
    conda:
        REPORT_ENV
    threads: CORES
    params:
        settings=lambda wc: GRAPH.dataset_settings(wc.dataset),
    shell:
        "python -m feedrate preprocess-dataset --index {input:q} "
        "--settings {params.settings:q} --out {output.manifest:q} 2> >(tee {log:q} >&2)"


rule store_dataset:
    """Decode, resize and tokenise the data once, for runs with `loader.decode: cache`."""
    input:
        data=ancient(paths.MANIFEST),
        weights=lambda wc: ancient(GRAPH.weights_of_store(wc.store)),
    output:
        paths.STORE,
    log:
        f"{paths.LOGS}/store_dataset/{{dataset}}-{{identity}}.{{store}}.log",
    conda:
        "../../envs/cpu.yaml"
    threads: CORES
    params:
        settings=lambda wc: GRAPH.store_settings(wc.store),
    shell:
        "python -m feedrate store-dataset --data {input.data:q} "
        "--settings {params.settings:q} --out {output:q} 2> >(tee {log:q} >&2)"
