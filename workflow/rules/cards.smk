"""Kept models: write their cards and, with `push_to_hub`, upload them to the hub."""


rule write_card:
    """Describe a kept model: its origin, training, throughput and scores."""
    input:
        outcome=paths.OUTCOME,
        # Other runs of the device are parsed with it: their records change no card.
        parsed=ancient(paths.RECORDS),
        quality=paths.QUALITY,
    output:
        paths.CARD,
    log:
        f"{paths.RUN}/card.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        card=lambda wc: VIEW.card(wc.study, wc.device, wc.cell, wc.repeat),
    shell:
        "python -m feedrate write-card --settings {params.card[settings]:q} "
        "--record {params.card[record]:q} --quality {input.quality:q} --model {params.card[model]:q} "
        "--out {output:q} 2> >(tee {log:q} >&2)"


rule push_model:
    """Upload a kept model and its card to the hub."""
    input:
        card=paths.CARD,
        quality=paths.QUALITY,
    output:
        paths.PUSHED,
    log:
        f"{paths.RUN}/push.log",
    localrule: DOWNLOADS_ARE_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        push=lambda wc: VIEW.pushing(wc.study, wc.device, wc.cell, wc.repeat),
    shell:
        "python -m feedrate push-model --model {params.push[model]:q} "
        "--quality {input.quality:q} --repository {params.push[settings][repository]:q} "
        "--place {params.push[settings][place]:q} --out {output:q} 2> >(tee {log:q} >&2)"
