"""Training: one rule per device, so that a profile can send each to its own partition."""

# No `benchmark`: in a job's first 15 s, Snakemake would read the memory of all its processes twice
# a second, on the cores that are measured (docs/measurement.md). The outcome has time and memory.

ENVIRONMENTS = plugins.declared("feedrate.devices.kinds", "ENVIRONMENT")

for device, entry in VIEW.devices():

    rule:
        name:
            paths.rule_of(paths.TRAIN_RULE, device)
        input:
            **VIEW.inputs.of_training(device),
            data=VIEW.inputs.data(device),
        output:
            # Only the last file of the run's folder: this makes planning thousands of runs faster.
            paths.OUTCOME.replace("{device}", device),
        log:
            paths.TRAIN_LOG.replace("{device}", device),
        priority: signed(lambda wc, device=device: VIEW.order(wc.study, device, wc.cell, wc.repeat))
        conda:
            f"../../envs/{ENVIRONMENTS[entry.kind]}.yaml"
        # All cores, so that no other job runs while a training job is measured.
        threads: entry.threads or CORES
        resources:
            **VIEW.resources.training(device, retried=RETRIED),
        params:
            train=signed(
                lambda wc, device=device: VIEW.training(
                    wc.study, device, wc.cell, wc.repeat
                )
            ),
        shell:
            "python -m feedrate train --spec {params.train[settings]:q} --data {input.data:q} "
            "--out $(dirname {output:q}) --source-digest {params.train[source]} "
            "--attempt {params.train[attempt]} --try {resources.tries} {params.train[winoground]}"
