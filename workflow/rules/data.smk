"""Data: fetch and prepare datasets, fetch Winoground and weights. The identity of what they
are made from is in the paths, so inputs are `ancient`: their times say nothing."""

store = lambda wc: GRAPH.data.store_spec(wc.store)


rule fetch_dataset:
    """Fetch a dataset's images and rows, with a checksum for every file."""
    output:
        paths.RAW_INDEX,
    log:
        f"{paths.LOGS}/fetch_dataset/{{dataset}}-{{identity}}.log",
    localrule: "downloads" in ON_DRIVER
    conda:
        REPORT_ENV
    params:
        job=lambda wc: GRAPH.data.fetch_dataset(wc.dataset),
    shell:
        "python -m feedrate {params.job} --out {output:q} 2> >(tee {log:q} >&2)"


# A copy of Winoground, or its drawn stand-in, with a checksum for every image.
use rule fetch_dataset as fetch_winoground with:
    output:
        paths.WINOGROUND,
    log:
        f"{paths.LOGS}/fetch_winoground/{{winoground}}-{{identity}}.log",
    localrule: "downloads" in ON_DRIVER
    params:
        job=lambda wc: GRAPH.data.fetch_winoground(wc.winoground),


# A hub checkpoint's weights and tokenizer, with a checksum for every file.
use rule fetch_dataset as fetch_checkpoint with:
    output:
        paths.CHECKPOINT,
    log:
        f"{paths.LOGS}/fetch_checkpoint/{{checkpoint}}.log",
    localrule: "downloads" in ON_DRIVER
    params:
        job=lambda wc: GRAPH.data.fetch_checkpoint(wc.checkpoint),


rule preprocess_dataset:
    """Verify every image; convert those that can be converted, and list those left out."""
    input:
        lambda wc: ancient(GRAPH.data.raw_index(wc.dataset)),
    output:
        manifest=paths.MANIFEST,
        report=paths.DATA_REPORT,
    log:
        f"{paths.LOGS}/preprocess_dataset/{{dataset}}-{{identity}}.log",
    conda:
        REPORT_ENV
    threads: CORES
    params:
        job=lambda wc: GRAPH.data.preprocess_dataset(wc.dataset),
    shell:
        "python -m feedrate {params.job} --index {input:q} --out {output.manifest:q} "
        "2> >(tee {log:q} >&2)"


rule store_dataset:
    """Decode, resize and tokenise the data once, for runs with `loader.decode: cache`."""
    input:
        data=ancient(paths.MANIFEST),
        weights=lambda wc: ancient(GRAPH.data.fetched_weights(store(wc).model)),
    output:
        paths.STORE,
    log:
        f"{paths.LOGS}/store_dataset/{{dataset}}-{{identity}}.{{store}}.log",
    conda:
        "../../envs/cpu.yaml"
    threads: CORES
    params:
        job=lambda wc: job("store_dataset", settings=store(wc)),
    shell:
        "python -m feedrate {params.job} --data {input.data:q} --out {output:q} "
        "2> >(tee {log:q} >&2)"
