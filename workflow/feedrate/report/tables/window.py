"""Sensitivity to the timed window: ours, the Trainer's, and the window of the source's protocol."""

from statistics import median

from feedrate.config.study import SourceProtocol
from feedrate.report import text
from feedrate.report.markup import Field, Markup, cell_table, noted
from feedrate.report.params import PageSettings
from feedrate.report.rows import CellRow, Inputs, Key, Trace, traces

NEEDS = ("cells", "runs")
ORDER = 150


def render(settings: PageSettings, inputs: Inputs) -> Markup:
    """A row for each tried cell; the source's window is computed from the steps of the ok runs.
    Without a protocol of the source it has all steps."""
    protocol = settings.origin.protocol
    found: dict[Key, list[tuple[float, float]]] = {}
    for trace in traces(inputs, settings.study):
        if trace.run.status == "ok" and (window := source_window(trace, protocol)):
            found.setdefault(trace.run.key, []).append(window)

    def source(cell: CellRow) -> str:
        rates, epochs = zip(*found.get(cell.key, [(None, 0.0)]), strict=True)
        wanted = f" of {protocol.epochs}" * bool(protocol.epochs)
        covered = f"{text.number(median(epochs), 2)}{wanted} epochs" * bool(rates[0])
        return noted(_compared(cell, median(rates) if rates[0] else None), covered)

    name = f"The source's ({text.count(protocol.warmup_steps, 'step')} left out)"
    columns: dict[str, Field] = {
        "Our window (samples/s)": lambda cell: text.number(cell.samples_per_s),
        "The Trainer's own": lambda cell: _compared(cell, cell.trainer_samples_per_s),
        "All steps" if protocol == SourceProtocol() else name: source,
    }
    return cell_table(settings, inputs.tried(settings.study), columns)


def source_window(trace: Trace, protocol: SourceProtocol) -> tuple[float, float] | None:
    """The rate by the source's protocol, samples/s, and the epochs that it covers: from its warm-up
    to the end of its epochs, with their boundaries, as far as the run went. None without any such
    step. Pauses for checkpoints and evaluations are left out."""
    last, of_epoch = trace.steps[-1].step, trace.run.steps_per_epoch
    if protocol.epochs and of_epoch:
        last = min(last, protocol.epochs * of_epoch)
    steps = [step for step in trace.steps if protocol.warmup_steps < step.step <= last]
    if not steps or not of_epoch:
        return None
    samples = sum(step.samples or 0 for step in steps) * (trace.run.world_size or 1)
    return samples / sum(step.step_s for step in steps), last / of_epoch


def _compared(cell: CellRow, rate: float | None) -> str:
    ratio = rate / cell.samples_per_s if rate and cell.samples_per_s else None
    return noted(text.number(rate), text.ratio(ratio) if ratio else "")
