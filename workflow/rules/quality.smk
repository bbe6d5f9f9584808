"""Quality: score every model that a run keeps, before and after training."""

WINOGROUND = PROJECT.config.winoground
EXAMPLES = paths.WINOGROUND.format(winoground=WINOGROUND) if WINOGROUND else []

for device, entry in VIEW.devices():

    rule:
        name:
            paths.rule_of(paths.EVALUATE_RULE, device)
        input:
            outcome=paths.OUTCOME.replace("{device}", device),
            data=paths.MANIFEST.format(dataset=PROJECT.config.dataset),
            weights=VIEW.inputs.checkpoints(device),
            winoground=EXAMPLES,
        output:
            paths.QUALITY.replace("{device}", device),
        log:
            f"{paths.RUN}/quality.log".replace("{device}", device),
        conda:
            f"../../envs/{ENVIRONMENTS[entry.kind]}.yaml"
        # All cores, so that no training job is measured while a model is scored.
        threads: entry.threads or CORES
        resources:
            **VIEW.resources.training(device, retried=RETRIED),
        params:
            score=lambda wc, device=device: VIEW.scoring(
                wc.study, device, wc.cell, wc.repeat
            ),
            winoground=f"--winoground {EXAMPLES}" if EXAMPLES else "",
        shell:
            "python -m feedrate score --spec {params.score[settings]:q} "
            "--outcome {input.outcome:q} --model {params.score[model]:q} --data {input.data:q} "
            "{params.winoground} --attempt {params.score[attempt]} --out {output:q} "
            "2> >(tee {log:q} >&2)"


rule collect_quality:
    """Collect the scores of a study's models into one table."""
    input:
        lambda wc: VIEW.scores(wc.study),
    output:
        paths.QUALITY_CSV,
    log:
        f"{paths.LOGS}/collect_quality/{{study}}.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        collect=lambda wc: VIEW.collecting_scores(wc.study),
        arguments=lambda wc: VIEW.quality_arguments(wc.study),
    shell:
        "python -m feedrate collect-quality @{params.arguments:q} --out {output:q} "
        "2> >(tee {log:q} >&2)"
