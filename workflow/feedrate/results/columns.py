"""The columns of the result files: name, kind, unit and meaning, the same as in docs/results.md."""

from typing import Literal, NamedTuple

Kind = Literal["text", "integer", "number", "flag"]

FACTORS = "<factor>"
"""Stands in a list of columns where one column per factor of the studies is put in."""


class Column(NamedTuple):
    """One column of a result file; empty fields mean 'not known' or 'does not apply'."""

    name: str
    kind: Kind
    unit: str
    description: str


def _text(name: str, description: str) -> Column:
    return Column(name, "text", "", description)


def _integer(name: str, unit: str, description: str) -> Column:
    return Column(name, "integer", unit, description)


def _number(name: str, unit: str, description: str) -> Column:
    return Column(name, "number", unit, description)


def _flag(name: str, description: str) -> Column:
    return Column(name, "flag", "", description)


_CELL = (
    _text("study", "Study: a file in config/studies."),
    _text("device", "Device: an entry of config/devices.yaml."),
    _text("cell", "The cell's name: its levels, as `workers=2~decode=host`."),
    _text(FACTORS, "One column per factor of the studies, with the cell's level."),
)

RUNS = (
    *_CELL,
    _integer("repeat", "", "Which repeat of the cell, from 1."),
    _text("status", "ok, out_of_memory, failed, invalid or unsupported."),
    _text("cause", "Why the status is not ok; of an ok run, what went wrong after its results."),
    _text("task", "training, or inference: then a step is a forward pass."),
    _number("samples_per_s", "samples/s", "Samples of all ranks over the window's wall time."),
    _number("step_time_median_s", "s", "Median time of a step, slowest rank, or of a pass."),
    _number("step_time_p95_s", "s", "95th percentile of the step times."),
    _number("step_time_p99_s", "s", "99th percentile of them."),
    _number("first_step_s", "s", "The very first step (compilation), outside the window."),
    _number("data_wait_share", "share", "Wait for batches over wall time, mean of the ranks."),
    _number("peak_memory_gib", "GiB", "Peak memory of a device; on cpu of the process."),
    _number("host_peak_memory_gib", "GiB", "Peak memory of the job's processes on its first host."),
    _integer("allocator_retries", "", "Times that CUDA's allocator had to ask again, all ranks."),
    _number("energy_j", "J", "Energy of the job's devices in the window, by their own counters."),
    _number("energy_j_per_sample", "J", "The same over the window's samples."),
    _number("power_w", "W", "Mean power of the job's devices together in the window."),
    _number("mfu", "share", "Model FLOPs over the data-sheet peak of the precision, 0 to 1."),
    _number("mfu_achievable", "share", "Model FLOPs over the achievable peak."),
    _number("tflops_per_device", "TFLOP/s", "Model FLOPs a second and device."),
    _number("trainer_samples_per_s", "samples/s", "What the Trainer itself says; never mixed in."),
    _number("loader_samples_per_s", "samples/s", "The loader alone, with no model, all ranks."),
    _number("model_samples_per_s", "samples/s", "The model alone, on one batch, all ranks."),
    _number("exchange_samples_per_s", "samples/s", "The gradients' exchange alone, all ranks."),
    _number("pixel_mean_abs_diff", "levels", "Pixels against decode: reference, of 0 to 255."),
    _number("pixel_psnr_db", "dB", "The same as a ratio; empty where nothing differs."),
    _number("loss_first", "", "Loss of the first step that reported one."),
    _number("loss_last", "", "Loss of the last step that reported one."),
    _number(
        "loss_end", "", "Mean of the last tenth of the losses that were reported, of 5 at least."
    ),
    _integer("batch_size", "samples", "Per device and micro-step."),
    _integer("gradient_accumulation", "", "Micro-steps per optimizer step."),
    _integer("world_size", "", "Devices in the job, and so ranks."),
    _integer("nodes", "", "Hosts that share the ranks evenly."),
    _integer("loader_workers", "", "Loader processes a rank, whatever sets them."),
    _flag("decodes_on_device", "Whether the device decodes; then a thread at least loads beside."),
    _flag("oversubscribed", "Whether a host's ranks have more loader processes than cores."),
    _flag("keeps_last_batch", "Whether an epoch's last, smaller batch is trained on."),
    _text("precision", "fp32, bf16, fp16, fp8, bf16_full or fp16_full."),
    _integer("steps", "", "Optimizer steps in the timed window."),
    _integer("warmup_steps", "", "Optimizer steps left out before it."),
    _integer("samples", "samples", "Samples of all ranks in the window."),
    _number("wall_s", "s", "Wall time of the window, slowest rank."),
    _number("paused_s", "s", "Checkpoints and evaluations taken out of the window."),
    _text("model", "Model and size, as `bridgetower-tiny`."),
    _integer("model_parameters", "", "Parameters of the model as built."),
    _number("flops_per_sample", "FLOP", "Forward and backward (inference: forward), 2 a MAC."),
    _integer(
        "cores_granted", "", "CPU cores that the job may use on a host, by affinity and cgroup."
    ),
    _text("device_model", "Device model as the driver reports it."),
    _text("bf16_instructions", "Of the CPU: amx_bf16, avx512_bf16 or both, by `;`."),
    _text("host", "Host that the job ran on."),
    _text("library", "Library of the Trainer, with version."),
    _text("dataset", "Dataset: an entry of config/config.yaml."),
    _text("commit", "Commit of the project at the run."),
    _text("source_digest", "Digest of the code that defines the measured work."),
    _text("data_digest", "Digest of the prepared data's manifest."),
    _text("spec_digest", "Digest of spec.json."),
    _text("started_at", "Start of the job, UTC, ISO 8601."),
    _number("duration_s", "s", "The job from start to end, set-up included."),
    _integer("attempt", "", "Which attempt of the run this was, from 1."),
    _text("failed_checks", "Names of the checks that the run did not pass, by `;`."),
    _text("record", "Path of the run's record.json."),
)

CELLS = (
    *_CELL,
    _text("status", "ok where at least one run is; else what its runs ended in, or unsupported."),
    _text("cause", "Of the first run with that status; of ok cells why a run does not count."),
    _text("task", "training, or inference: then a step is a forward pass."),
    _integer("runs", "", "Runs that ended in a record."),
    _integer("ok_runs", "", "Runs that count; all medians are over these."),
    _integer("out_of_memory_runs", "", "Runs that ran out of memory."),
    _integer("failed_runs", "", "Runs that failed."),
    _integer("invalid_runs", "", "Runs whose numbers a check rejected."),
    _number("samples_per_s", "samples/s", "Median over the ok runs."),
    _number("ci_low", "samples/s", "Lower end of the bootstrap interval of that median."),
    _number("ci_high", "samples/s", "Upper end of it."),
    _number("spread", "share", "(max - min) / median of the ok runs' samples_per_s."),
    _flag("noisy", "Whether the spread is above the study's noise_share."),
    _number("step_time_median_s", "s", "Median over runs of the runs' median step time."),
    _number("step_time_p95_s", "s", "Median over runs of the runs' 95th percentile."),
    _number("step_time_p99_s", "s", "Median over runs of the runs' 99th percentile."),
    _number("first_step_s", "s", "Median over runs of the first step."),
    _number("data_wait_share", "share", "Median over runs."),
    _number("peak_memory_gib", "GiB", "Largest over runs."),
    _number("host_peak_memory_gib", "GiB", "Largest over runs."),
    _integer("allocator_retries", "", "Most over runs."),
    _number("energy_j_per_sample", "J", "Median over runs: of the devices, their hosts left out."),
    _number("power_w", "W", "Median over runs: all devices of the job together."),
    _number("usd_per_million_samples", "USD", "At the device's price_usd_per_hour, if it has one."),
    _number("mfu", "share", "Median over runs."),
    _number("mfu_achievable", "share", "Median over runs."),
    _number("tflops_per_device", "TFLOP/s", "Median over runs."),
    _number("loss_last", "", "Median over runs: after equal samples in all cells."),
    _number("loss_end", "", "Median over runs of the mean loss at the end."),
    _number("loss_shift", "", "loss_end over the baseline cell's: mean over common repeats."),
    _number("loss_seeds", "", "What seeds alone do to loss_end: a range of repeats."),
    _flag("loss_departs", "Whether the shift exceeds loss_seeds: the setting learns differently."),
    _number("trainer_samples_per_s", "samples/s", "Median over runs."),
    _number("loader_samples_per_s", "samples/s", "Median over runs: the loader's ceiling."),
    _number("model_samples_per_s", "samples/s", "Median over runs: the model's ceiling."),
    _number("exchange_samples_per_s", "samples/s", "Median over runs: the exchange's ceiling."),
    _number("pixel_mean_abs_diff", "levels", "Largest over runs."),
    _integer("world_size", "", "Devices in the job."),
    _integer("nodes", "", "Hosts that share the ranks evenly."),
    _integer("batch_size", "samples", "Per device and micro-step."),
    _integer("cores_granted", "", "Fewest over runs."),
    _number("speedup", "", "Over the study's baseline cell on the same device."),
    _number("speedup_ci_low", "", "Lower end of the bootstrap interval of that ratio."),
    _number("speedup_ci_high", "", "Upper end of it."),
    _text(
        "verdict",
        "input-bound, compute-bound, memory-pressed, communication-bound, mixed or undecided.",
    ),
    _text("why", "The figures that the verdict rests on, in a sentence."),
    _flag("recommended", "The smallest change, then fewest workers, within noise of the best."),
    _text("recommendation", "The recommendation in a sentence, on the recommended cells."),
)

CLAIMS = (
    _text("study", "Study that the claim belongs to."),
    _text("claim", "Name of the claim in the study."),
    _text("device", "Device or devices that the expression compares, by `;`."),
    _text("source", "Title of the source."),
    _text("edition", "State of the source that the published numbers are from."),
    _text("statement", "The claim in words."),
    _text("expression", "The ratio of cells that it stands for."),
    _number("published_value", "", "The ratio that the source prints."),
    _number("recomputed_from_published", "", "The same ratio of the source's own table."),
    _text("published_verdict", "consistent or not: whether the two agree as far as printed."),
    _number("measured", "", "The ratio of our medians."),
    _number("ci_low", "", "Lower end of its bootstrap interval."),
    _number("ci_high", "", "Upper end of it."),
    _text("verdict", "holds, does not, or no data here."),
    _text("why", "The verdict's reason in a sentence."),
)

FIT = (
    _text("study", "Study."),
    _text("origin", "Where the rates are from: `here`, or `published` and the edition."),
    *_CELL[1:],
    _text("series", "What tells the device's fits apart: cells of one share Tc and Td."),
    _integer("loader_workers", "", "Loader processes a rank in this cell."),
    _integer("world_size", "", "Devices in the job."),
    _number("samples_per_s", "samples/s", "Rate of the job that the model is fitted to."),
    _number("predicted", "samples/s", "What the fitted model says for it."),
    _number("residual", "share", "predicted / samples_per_s - 1."),
    _number("tc_s", "s", "Tc, fitted: the device's time for one sample, per device."),
    _number("td_s", "s", "Td, fitted: one worker's time to load one sample."),
    _number("r2", "", "Share of the variance between the fit's cells that it explains."),
    _number("max_error", "share", "Largest residual of the fit, without its sign."),
    _text("bound", "Which term is the smaller in this cell: serial, compute or loader."),
    _number("tc_measured_s", "s", "The model alone, per sample and device (median of its cells)."),
    _number("td_measured_s", "s", "The loader alone with no worker, per sample and rank."),
    _number("predicted_from_ceilings", "samples/s", "The model with the measured ceilings."),
    _number("ceiling_residual", "share", "predicted_from_ceilings / samples_per_s - 1."),
    _text("reading", "What the fit says of this device, in a sentence."),
    _text("across_devices", "What the fits of one origin say together, in a sentence."),
)

QUALITY = (
    *_CELL,
    _integer("repeat", "", "Which repeat of the cell, from 1."),
    _text("status", "ok; failed: the model was not scored; no_model: the run left none."),
    _text("cause", "Why it was not."),
    _text("moment", "before or after training."),
    _text("on", "validation, test or winoground."),
    _text("metric", "contrastive_loss, matching_accuracy, text_to_image_recall_at_1 and so on."),
    _text("head", "What scored a pair, where a model has several heads."),
    _number("value", "", "The metric: a mean over n; empty where there is none."),
    _number("low", "", "Lower end of its bootstrap interval, 95%."),
    _number("high", "", "Upper end of it."),
    _integer("n", "", "What it is a mean over."),
    _number("chance", "", "What chance gives."),
    _number("seconds", "s", "What it took, with all that was scored in the same passes."),
    _text("note", "Why there is no value, or how it was taken."),
    _number("job_s", "s", "The whole scoring of the run, set-up included."),
    _text("file", "Path of the run's quality.json."),
)

COMPARISON = (
    *_CELL,
    _text(
        "change", "slower, faster, no difference, other status, only before, only after, no rate."
    ),
    _text("why", "The reason of that word in a sentence, or the cause of a cell that is not ok."),
    _text("status_before", "As in cells.csv; empty where the cell is not in OLD."),
    _text("status_after", "As in cells.csv; empty where the cell is not in NEW."),
    _integer("ok_runs_before", "", "Runs of OLD that count."),
    _integer("ok_runs_after", "", "Runs of NEW that count."),
    _integer("same_runs", "", "Runs of NEW that OLD has too: they were not made again."),
    _number("samples_per_s_before", "samples/s", "Median over the ok runs of OLD."),
    _number("samples_per_s_after", "samples/s", "Median over the ok runs of NEW."),
    _number("ratio", "", "samples_per_s_after over samples_per_s_before: below 1 is slower."),
    _number("ratio_ci_low", "", "Lower end of the bootstrap interval of that ratio."),
    _number("ratio_ci_high", "", "Upper end of it."),
    _text("differs", "What of spec, data, code, machine and commit is another, by `;`."),
    _text("software", "Versions that differ, as `torch 2.8.0 to 2.9.0`, by `;`."),
)


def with_factors(columns: tuple[Column, ...], factors: dict[str, Kind]) -> list[Column]:
    """`columns` with the factors' own in the place held for them; a factor that bears the name
    of a column of settings (`batch_size`) is that column."""
    fixed = {column.name for column in columns}
    own = [Column(name, kind, "", f"Level of {name}.") for name, kind in factors.items()]
    return [
        column
        for entry in columns
        for column in (
            [c for c in own if c.name not in fixed] if entry.name == FACTORS else [entry]
        )
    ]
