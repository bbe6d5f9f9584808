"""Training and the self-test: a rule per device, which a profile sends to its partition."""

ENVIRONMENTS = plugins.declared("feedrate.devices.kinds", "ENVIRONMENT")

for device in PROJECT.config.devices:
    entry = PROJECT.devices[device]

    rule:
        name:
            paths.rule_of(paths.TRAIN_RULE, device)
        input:
            **{part: ancient(files) for part, files in GRAPH.inputs(device).items()},
        output:
            paths.OUTCOME.replace("{device}", device),
        log:
            paths.RUN_LOG.replace("{device}", device),
        priority: with_cached_signature(lambda wc, device=device: GRAPH.order(device, wc))
        conda:
            f"../../envs/{ENVIRONMENTS[entry.kind]}.yaml"
        # All cores, so that no other job runs while a training job is measured.
        threads: entry.threads or CORES
        resources:
            **training(PROJECT, device, retried=RETRIED),
        params:
            job=with_cached_signature(lambda wc, device=device: GRAPH.train(device, wc)),
        # No `benchmark`: it would read the memory of all processes on the measured cores.
        shell:
            "python -m feedrate {params.job} --try {resources.tries} 2> >(tee -a -i {log:q} >&2)"

    rule:
        name:
            paths.rule_of(paths.SELFTEST_RULE, device)
        input:
            data=ancient(GRAPH.data.drawn()),
            parts="config/selftest.yaml",
        output:
            paths.SELFTEST.replace("{device}", device),
        log:
            f"{paths.LOGS}/selftest/{device}.log",
        conda:
            f"../../envs/{ENVIRONMENTS[entry.kind]}.yaml"
        threads: entry.threads or CORES
        resources:
            **of_device(entry),
            # Time for what does not end by itself.
            runtime=50 + round(PROJECT.config.selftest_minutes),
        params:
            job=GRAPH.selftest(device),
        shell:
            "python -m feedrate {params.job} --data {input.data:q} --parts {input.parts:q} "
            "--out {output:q} 2> >(tee {log:q} >&2)"
