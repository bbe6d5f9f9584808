"""Checks that a run did the work that was requested, undisturbed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from feedrate.config.devices import Device, is_called
from feedrate.config.spec import KINDS, LIBRARIES, RunSpec, library_of
from feedrate.core import plugins
from feedrate.jobs.events import RankEvents
from feedrate.results.measurement import windows_of
from feedrate.results.parts import counter_changes, foreign_cpu
from feedrate.results.record import Outcome
from feedrate.results.schema import Ceilings, Measurement
from feedrate.results.trainer_logs import fallback_warning


class Evidence(NamedTuple):
    """The input of a check: what was requested, and what the run left behind."""

    spec: RunSpec
    measurement: Measurement
    device: Device
    ranks: Mapping[int, RankEvents]
    outcome: Outcome | None = None
    log: str = ""
    not_finite: Sequence[str] = ()  # figures of the Trainer

    @property
    def first(self) -> RankEvents:
        """The events of rank 0."""
        return self.ranks.get(0, RankEvents())


Judgement = tuple[bool, str]  # whether a check is passed, and a sentence


def joined(values: Iterable[object]) -> str:
    """Values in a sentence."""
    return ", ".join(map(str, values))


def _as_requested(what: str, request: object, used: object) -> Judgement:
    if used == request:
        return True, f"{what} is {request}, as requested."
    return False, f"{what}: {request} was requested, {used or 'an unknown one'} was used."


def all_ranks_reported(e: Evidence) -> Judgement:
    """Every rank closed a timed window."""
    missing = sorted(set(range(e.spec.count)) - set(windows_of(e.ranks)))
    if missing:
        return False, f"No timed window from rank {joined(missing)} of {e.spec.count}."
    return True, f"All {e.spec.count} ranks reported."


def world_size(e: Evidence) -> Judgement:
    """Each rank saw as many ranks as requested."""
    sizes = {events.start.world_size for events in e.ranks.values() if events.start}
    if sizes == {e.spec.count}:
        return True, f"The world size is {e.spec.count}, as requested."
    others = joined(sorted(sizes - {e.spec.count})) or "unknown"
    return False, f"The world size is {others}, expected {e.spec.count}."


def device_model(e: Evidence) -> Judgement:
    """The device's model matches the `model_pattern` of `config/devices.yaml`."""
    starts = [events.start for events in e.ranks.values() if events.start]
    models = sorted({start.device_model for start in starts if start.device_model})
    pattern, names = e.device.model_pattern, joined(models) or "unknown"
    if pattern is None:
        return True, f"config/devices.yaml names no model; found {names}."
    if not models or not all(is_called(model, pattern) for model in models):
        return False, f"The device model is {names}, config/devices.yaml expects /{pattern}/."
    return True, f"The device model is {names}, as in config/devices.yaml."


def decode_path(e: Evidence) -> Judgement:
    """Images were decoded on the requested path; optimum-habana's fallback warning fails it."""
    warning = fallback_warning(e.log)
    if warning:
        return False, f"The host decoded instead of the device; the log says `{warning}`."
    used = e.first.data.decode if e.first.data else None
    return _as_requested("decode", e.spec.settings.loader.decode, used)


def library(e: Evidence) -> Judgement:
    """The requested loader library made the batches, in the requested form. Each
    batch is compared with the request (rows, type, layout); a different one ends the run."""
    loader, data = e.spec.settings.loader, e.first.data
    name, form = library_of(loader) or "torch", loader.form or "same"
    if data is None or data.library is None:
        return name == "torch", f"The library {name} was requested; the run reported none."
    package = plugins.declared(LIBRARIES, "PACKAGES").get(name, ("torch",))[0]
    if (data.library.partition(" ")[0], data.form) != (package, form):
        return False, f"{package}, {form}, was requested; {data.library}, {data.form}, was used."
    return True, f"{data.library} made the batches, in the form {form}."


PIXEL_BOUND = 20.0
"""Levels of 255 by which a picture may differ from `decode: reference` on average. For drawn
pictures at 294 px it is up to 4.5 with `scaled_decode`, and at least 46 for another picture."""


def pixels(e: Evidence) -> Judgement:
    """No compared picture differs from `decode: reference` by more than 20 of 255 levels on
    average. A larger difference means a damaged or a different picture."""
    data = e.first.data
    worst = (data.pixel_worst_abs_diff or data.pixel_mean_abs_diff) if data else None
    if worst is None:
        return True, "The pixels were not compared."
    most = f"at most {worst:.3g} of 255"
    return worst <= PIXEL_BOUND, f"Pictures differ from the reference by {most}."


def attention(e: Evidence) -> Judgement:
    """The model's layers ran the requested attention."""
    request, model = e.spec.settings.model.attention, e.first.model
    return _as_requested("attention", request, (model and model.attention) or request)


def strategy(e: Evidence) -> Judgement:
    """In training: gradients were exchanged, parameters sharded and layers checkpointed as
    requested, with the requested settings of DDP."""
    train, model, used = e.spec.settings.train, e.spec.settings.model, e.first.strategy
    name = train.strategy
    if used is None:
        is_plain = name != "fsdp" and not model.checkpointing
        return is_plain, f"The strategy {name} was requested; the run reported none."
    if (e.spec.count > 1 or name == "fsdp") and used.name != name:
        return _as_requested("strategy", name, used.name)
    for state, is_requested, count in (
        ("sharded", name == "fsdp", used.sharded_layers),
        ("offloaded", train.cpu_offload, used.offloaded_layers),
        ("checkpointed", model.checkpointing, used.checkpointed_layers),
    ):
        expected = used.layers if is_requested else 0
        if count != expected or (is_requested and not count):
            return False, f"{count} of {used.layers} layers were {state}, expected {expected}."
    replaced = plugins.declared(KINDS, "INSTEAD").get(e.spec.kind, {})
    for key, value in (used.ddp or {}).items():
        request = getattr(train, key)
        if f"train.{key}" not in replaced and request not in (None, value):
            return _as_requested(f"train.{key}", request, str(value))
    sums = f"; gradients were added in {used.reduce_dtype}" if used.reduce_dtype else ""
    return True, f"The strategy was as requested: {used.name}{sums}."


WAYS = ("fused", "foreach", "loop", "8bit", "4bit")
"""Ends of the Trainer's names of optimizers, which the name of what ran must share."""


def computation(e: Evidence) -> Judgement:
    """Precision, compilation, graphs and, in training, optimizer were as requested."""
    train, used = e.spec.settings.train, e.first.computation
    if used is None:
        return True, "The run reported nothing of its precision and optimizer."
    if used.precision != train.precision:
        return _as_requested("precision", train.precision, used.precision)
    way = train.optimizer.rpartition("_")[2]
    trains = e.spec.task == "training"
    if trains and way in WAYS and not used.optimizer.endswith(way):
        return _as_requested("optimizer", train.optimizer, used.optimizer)
    replaced = plugins.declared(KINDS, "INSTEAD").get(e.spec.kind, {})
    mode = attrgetter(replaced.get("train.execution", "train.execution"))(e.spec.settings)
    compiles = mode.startswith("compile") or mode == "cuda_graphs"
    may_compile = compiles or way in ("8bit", "4bit") or train.precision == "fp8"
    if bool(used.compiled_graphs) not in (compiles, may_compile):
        return False, f"{mode} was requested; torch.compile compiled {used.compiled_graphs} graphs."
    if mode == "cuda_graphs" and used.recorded_graphs is False:
        return False, "CUDA graphs were requested, and none was recorded."
    replayed, missed = used.replayed_passes, used.missed_passes
    counts_graphs = e.spec.settings.hpu.hpu_graphs_for_training and replayed is not None
    if counts_graphs and (missed or not replayed):
        return False, f"HPU graphs were requested: {replayed} passes replayed, {missed} missed."
    optimizer = f" with {used.optimizer}" if trains else ""
    return True, f"Steps were computed in {used.precision}{optimizer}, as requested."


def equal_weights(e: Evidence) -> Judgement:
    """In training: all ranks ended with equal weights, unless each held a part of them."""
    weights = {events.computation.weights for events in e.ranks.values() if events.computation}
    weights.discard("")
    if len(weights) > 1:
        return False, f"{e.spec.count} ranks ended with {len(weights)} different sets of weights."
    if not weights or e.spec.count == 1:
        return True, "No two ranks have whole weights to compare."
    return True, f"All {e.spec.count} ranks ended with equal weights."


def fp32(e: Evidence) -> Judgement:
    """On CUDA, fp32 was computed in TF32 with `precision: tf32`, and without TF32 otherwise."""
    request = "tf32" if e.spec.settings.train.precision == "tf32" else "ieee"
    used = (e.first.strategy and e.first.strategy.fp32) or request
    return _as_requested("fp32", request, used)


def data_digest(e: Evidence) -> Judgement:
    """The data that were read are the data that were prepared."""
    prepared = e.outcome.data_digest if e.outcome else ""
    if not prepared:
        return True, "No data digest was requested."
    used = sorted({r.data.digest for r in e.ranks.values() if r.data and r.data.digest})
    return _as_requested("data digest", prepared[:12], joined(digest[:12] for digest in used))


def alone_on_host(e: Evidence) -> Judgement:
    """No other job of feedrate (training, loaders alone) ran on the host when this one began or
    ended."""
    others = e.outcome.machine_before.get("other_training_jobs") if e.outcome else None
    if others:
        return False, f"Other processes of feedrate ran on the host: {others}."
    state = "were not looked for" if others is None else "did not run at the start or the end"
    return True, f"Other jobs of feedrate on the host {state}."


STOLEN_CERTAIN, STOLEN_POSSIBLE = 0.10, 0.02
"""Shares of the wanted CPU time from which a hypervisor's other guests disturb a run."""
FOREIGN_CERTAIN, FOREIGN_POSSIBLE = 0.25, 0.10
"""Shares of the time of the job's cores from which other processes disturb a run."""
FEW_IDLE = 0.10
"""Cores that are idle for a larger share have room for others: they certainly disturb no run."""
WAITED_FOR_MEMORY = 0.10
"""Share of the window in which processes waited for memory, from which a run is noisy."""


def disturbances(ranks: Mapping[int, RankEvents]) -> tuple[list[str], list[str]]:
    """The certain and the possible disturbances of a run in its window, as sentences."""
    certain: list[str] = []
    possible: list[str] = []
    for events in ranks.values():
        for note in events.notes:
            if note.about == "report_to":
                possible.append(f"During training, the Trainer also reported to {note.message}.")
        for machine in events.machines:
            lowered = "The device's clocks were lowered by {}.".format
            certain += map(lowered, machine.device.get("slowed_by", ()))
            possible += map(lowered, machine.device.get("limited_by", ()))
            if machine.device.get("others"):
                possible.append("Other processes were on the device.")
        if len(events.machines) == 2 and events.window:
            busy = events.machines[1].device.get("others_busy")
            if busy:
                certain.append(f"Another process used {busy:.0%} of the device's cores.")
            change, wall_s = counter_changes(events), events.window.wall_s
            stolen_s = change.get("cpu_stolen_s", 0.0)
            stolen = stolen_s / (change.get("cpu_wanted_s") or 1.0)
            if stolen >= STOLEN_POSSIBLE:
                sentence = f"The hypervisor gave {stolen:.0%} of the CPU time to other guests"
                if stolen_s < wall_s:  # at worst one core after another kept the job waiting
                    gain = stolen_s / (wall_s - stolen_s)
                    sentence += f"; without that, the rate would be up to {gain:.0%} higher"
                sentences = certain if stolen >= STOLEN_CERTAIN else possible
                sentences.append(f"{sentence}.")
            waited = change.get("memory_waited_s", 0.0) / (wall_s or 1.0)
            if waited >= WAITED_FOR_MEMORY:
                possible.append(f"Processes waited for memory {waited:.0%} of the time.")
    foreign, idle = foreign_cpu(ranks)
    if foreign >= FOREIGN_POSSIBLE:
        sentence = f"Other programs used {foreign:.0%} of the time of the job's CPU cores"
        if foreign < FOREIGN_CERTAIN or idle >= FEW_IDLE:
            possible.append(f"{sentence}.")
        else:
            names = _programs(ranks)
            certain.append(f"{sentence}: {names}." if names else f"{sentence}.")
    return list(dict.fromkeys(certain)), list(dict.fromkeys(possible))


NAMED = 0.02  # share of the cores' time from which a program is named


def _programs(ranks: Mapping[int, RankEvents]) -> str:
    """The busy programs of the window, on the host where they were, with their shares of the time
    of the job's cores: `python3 (pid 123, 40%), chromium (12%)`."""
    complete = [events for events in ranks.values() if counter_changes(events).get("cores_s")]
    busiest = max(complete, key=lambda events: sum(p.cpu_s for p in events.machines[1].programs))
    names = []
    for program in busiest.machines[1].programs:
        share = program.cpu_s / counter_changes(busiest)["cores_s"]
        if share >= NAMED:
            pid = f"pid {program.pid}, " if program.pid else ""
            names.append(f"{program.name} ({pid}{share:.0%})")
    return ", ".join(names)


LOADED_BEFORE = 0.05  # share of the window's batches, loaded before it, from which a run is noisy


def head_starts(spec: RunSpec, measurement: Measurement | None, parts: Ceilings) -> list[str]:
    """A sentence if workers had loaded many of the window's batches before it began; else none.
    Near the end of an epoch, fewer are ready than at the window's beginning. This changes no rate
    where the loader is at least as fast as training and has cores of its own."""
    loader = spec.settings.loader
    if measurement is None or not measurement.steps_per_epoch or not loader.workers:
        return []
    if spec.kind != "cpu" and (parts.loader_ratio_low or 0.0) >= 1:
        return []
    steps_per_epoch, first = measurement.steps_per_epoch, measurement.warmup_steps
    prefetch = loader.workers * loader.prefetch_factor / spec.settings.train.gradient_accumulation

    def ahead(step: int) -> float:
        done = step % steps_per_epoch
        return min(prefetch, steps_per_epoch - done) if done else 0.0

    share = (ahead(first) - ahead(first + measurement.steps)) / measurement.steps
    if share < LOADED_BEFORE:
        return []
    reason = "the epoch's end kept them from loading as many ahead again"
    return [f"Workers loaded {share:.0%} of the window's batches before it began; {reason}."]


def undisturbed(e: Evidence) -> Judgement:
    """None of these in the window: another process that computes on the device; clocks lowered by
    heat or power supply; 10% or more of the CPU time for other guests of a hypervisor; other
    processes on 25% or more of the job's cores while less than 10% is idle."""
    certain, possible = disturbances(e.ranks)
    if possible and not certain:
        return True, " ".join(["The run may have been disturbed.", *possible])
    return not certain, " ".join(certain) or "No disturbance was found."


SHARE = re.compile(r"\d+(?:\.\d+)?%")
PROGRAMS = re.compile(r"(?<=cores): (.+\))(?=\.$)")
PROGRAM = re.compile(r"(.+?) \((?:pid \d+, )?\d+%\)(?:, |$)")


def cause_kind(cause: str) -> str:
    """What sentences of one kind share: all but shares and programs."""
    return SHARE.sub("", PROGRAMS.sub("", cause))


def merge_causes(causes: Sequence[str]) -> str:
    """Sentences of one kind as one: `used 12% to 17% of the time`, and the programs' names."""
    if len(set(causes)) == 1:
        return causes[0]
    heads = [PROGRAMS.sub("", cause) for cause in causes]
    ranges = []
    for shares in zip(*map(SHARE.findall, heads), strict=True):
        ends = sorted(shares, key=lambda share: float(share[:-1]))
        ranges.append(" to ".join(dict.fromkeys((ends[0], ends[-1]))))
    merged = SHARE.sub(lambda _: ranges.pop(0), heads[0])
    programs = ", ".join(match for cause in causes for match in PROGRAMS.findall(cause))
    names = ", ".join(dict.fromkeys(PROGRAM.findall(programs)))
    return f"{merged.removesuffix('.')}: {names}." if names else merged


DISTURBED = {alone_on_host.__name__, undisturbed.__name__}
"""The checks that a run fails because of other work; the next call repeats such a run."""
MOST_ATTEMPTS = 3  # a run that is disturbed in so many attempts is not repeated again
