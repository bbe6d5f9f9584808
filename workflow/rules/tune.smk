"""Advice before a run: loader settings for this machine, and the rates to expect."""


# Runs only when named: `snakemake --profile local tune`, or `python -m feedrate tune`.
rule tune:
    """Recommend loader settings for each device of config/config.yaml."""
    input:
        expand(paths.ADVICE, device=PROJECT.config.devices),
        paths.PREDICTIONS,


rule predict_published:
    """Predict throughput where nobody published a number, from the published rates."""
    output:
        paths.PREDICTIONS,
    log:
        f"{paths.LOGS}/tune/predictions.log",
    localrule: SHORT_IS_LOCAL
    conda:
        "../../envs/report.yaml"
    params:
        predict=lambda wc: VIEW.predictions(),
    shell:
        "python -m feedrate predict-published --published {params.predict[settings]:q} "
        "--out {output:q} 2> >(tee {log:q} >&2)"


for device, entry in VIEW.devices():

    rule:
        name:
            paths.rule_of(paths.TUNE_RULE, device)
        input:
            data=lambda wc, device=device: paths.MANIFEST.format(
                dataset=VIEW.inputs.first_run(device).dataset
            ),
            others=lambda wc, device=device: VIEW.inputs.of_tuning(device),
        output:
            paths.ADVICE.replace("{device}", device),
        log:
            f"{paths.LOGS}/tune/{device}.log",
        conda:
            f"../../envs/{ENVIRONMENTS[entry.kind]}.yaml"
        threads: entry.threads or CORES
        resources:
            **VIEW.resources.tuning(device),
        params:
            tune=lambda wc, device=device: VIEW.tuning(device),
        shell:
            "python -m feedrate tune-device --spec {params.tune[settings]:q} "
            "--data {input.data:q} --out {output:q} 2> >(tee {log:q} >&2)"
