"""The self-test: what works on this machine, part by part."""


# Runs only when named: `snakemake --profile local selftest`, or `python -m feedrate selftest`.
rule selftest:
    """Show what works on each device of config/config.yaml."""
    input:
        expand(paths.SELFTEST, device=PROJECT.config.devices),


for device, entry in VIEW.devices():

    rule:
        name:
            paths.rule_of(paths.SELFTEST_RULE, device)
        input:
            data=paths.MANIFEST.format(dataset=VIEW.drawn()),
            parts="config/selftest.yaml",
        output:
            paths.SELFTEST.replace("{device}", device),
        log:
            f"{paths.LOGS}/selftest/{device}.log",
        conda:
            f"../../envs/{ENVIRONMENTS[entry.kind]}.yaml"
        threads: entry.threads or CORES
        resources:
            **VIEW.resources.testing(device),
        params:
            device=device,
            test=lambda wc, device=device: VIEW.testing(device),
        shell:
            "python -m feedrate selftest-device --device {params.device} "
            "--entry {params.test[settings]:q} --data {input.data:q} --parts {input.parts:q} "
            "--out {output:q} 2> >(tee {log:q} >&2)"
