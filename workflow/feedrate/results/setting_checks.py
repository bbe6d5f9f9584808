"""Gates on what was run: it must be what was asked for."""

from feedrate.config.device import is_called
from feedrate.results.evidence import Evidence, Finding, listed


def all_ranks(e: Evidence) -> Finding:
    """Every rank closed a window."""
    missing = sorted(set(range(e.spec.count)) - set(e.observed.ranks))
    if missing:
        return False, f"No timed window from rank {listed(missing)} of {e.spec.count}."
    return True, f"All {e.spec.count} ranks reported."


def world_size(e: Evidence) -> Finding:
    """Each rank saw as many as were asked for."""
    wrong = sorted(set(e.observed.world_sizes) - {e.spec.count})
    if wrong or not e.observed.world_sizes:
        said = listed(wrong) if wrong else "nothing"
        return False, f"The world size is {said}, asked for {e.spec.count}."
    return True, f"The world size is {e.spec.count}, as asked for."


def device_model(e: Evidence) -> Finding:
    """The device is the one of the registry."""
    pattern, models = e.device.model_pattern, sorted(set(e.observed.device_models))
    said = listed(models) or "nothing"
    if pattern is None:
        return True, f"The device registry asks for no model; found {said}."
    if not models or not all(is_called(model, pattern) for model in models):
        return False, f"The device says it is {said}, the registry asks for /{pattern}/."
    return True, f"The device is {said}, as registered."


def decode(e: Evidence) -> Finding:
    """Images were decoded where they were asked to be."""
    asked, used = e.spec.settings.loader.decode, e.observed.decode
    if e.observed.fallback is not None:
        return False, (
            f"The log says `Using Pytorch native dataloader because: {e.observed.fallback}`: "
            "decoding on the device was given up for the host."
        )
    if used != asked:
        return False, f"decode: {asked} was asked for, used was {used or 'not said'}."
    return True, f"Images were decoded as asked for: {asked}."


def attention(e: Evidence) -> Finding:
    """The attention kernel is the one asked for."""
    asked, run = e.spec.settings.model.attention, e.observed.attention
    if run not in (None, asked):
        return False, f"attention: {asked} was asked for, {run} was run."
    return True, f"Attention was {asked}, as asked for."


def strategy(e: Evidence) -> Finding:
    """The ranks shared their work as they were asked to."""
    asked, seen = e.spec.settings.train.strategy, e.observed
    if seen.strategy is None:
        plain = asked != "fsdp" and not e.spec.settings.model.checkpointing
        return plain, f"The strategy {asked} was asked for; what ran was not said."
    if (e.spec.count > 1 or asked == "fsdp") and seen.strategy != asked:
        return False, f"The strategy {asked} was asked for, {seen.strategy} was run."
    told = {
        "sharded": (asked == "fsdp", seen.sharded_layers),
        "offloaded": (e.spec.settings.train.cpu_offload, seen.offloaded_layers),
        "checkpointed": (e.spec.settings.model.checkpointing, seen.checkpointed_layers),
    }
    for what, (wanted, count) in told.items():
        expected = seen.layers if wanted else 0
        if count != expected or (wanted and not count):
            return False, f"{count} of {seen.layers} layers were {what}, asked for {expected}."
    for name, used in (seen.ddp or {}).items() if e.spec.kind != "hpu" else ():
        chosen = getattr(e.spec.settings.train, name)
        if chosen is not None and used != chosen:
            return False, f"train.{name}: {chosen} was asked for, {used} was used."
    return True, f"The work was shared by {seen.strategy}, as asked for."


def fp32(e: Evidence) -> Finding:
    """Single precision is single precision."""
    used = e.observed.fp32
    if used not in (None, "ieee"):
        return False, f"Single precision was asked for, {used} was computed in its place."
    return True, "fp32 is single precision."


def data(e: Evidence) -> Finding:
    """The data are those of the manifest."""
    asked, used = e.observed.data_digest_asked, sorted(set(e.observed.data_digests))
    if not asked:
        return True, "No data digest was asked for."
    if used != [asked]:
        seen = listed(digest[:12] for digest in used) or "no digest"
        return False, f"Data with digest {asked[:12]} were asked for, {seen} was read."
    return True, f"The data have digest {asked[:12]}, as asked for."


def alone(e: Evidence) -> Finding:
    """No other job of feedrate ran on the host at the start: no training, scoring or draining."""
    others = e.observed.other_training_jobs
    if others is None:
        return True, "Other jobs of feedrate on the host were not looked for."
    if others:
        return False, f"Other jobs of feedrate ran on the host at the start: {others}."
    return True, "No other job of feedrate ran on the host at the start."
