"""What the loader model and the claims say, in sentences: each with what it is about."""

from collections.abc import Sequence

from feedrate.report import text
from feedrate.report.rows import ClaimRow, FitRow
from feedrate.report.settings import StudySettings
from feedrate.results.loader_model import POOR_FIT

Said = tuple[str, str]
"""What a sentence is about, and the sentence."""


def taught(settings: StudySettings, fits: Sequence[FitRow]) -> list[Said]:
    """What the loader model says of the published numbers, and of ours."""
    theirs = [fit for fit in fits if fit.origin != "here"]
    fewest: dict[str, int] = {}
    for fit in theirs:
        if fit.bound == "compute" and fit.loader_workers is not None:
            name = fit.called(settings.label(fit.device))
            fewest[name] = min(fit.loader_workers, fewest.get(name, fit.loader_workers))
    free: dict[int, list[str]] = {}
    for name, workers in fewest.items():
        free.setdefault(workers, []).append(name)
    said = [
        f"{text.listed(names)} look compute-bound from {text.count(workers, 'worker')} on."
        for workers, names in free.items()
    ]
    said += dict.fromkeys(fit.across_devices for fit in theirs if fit.across_devices)
    found = [("What the published numbers say", " ".join(said))] if said else []
    ours: dict[str, FitRow] = {}  # of each device the first fit: of cells like the baseline
    for fit in fits:
        if fit.origin == "here" and fit.reading:
            ours.setdefault(fit.device, fit)
    return found + [("What ours say", _reading(settings, fit)) for fit in ours.values()]


def _reading(settings: StudySettings, fit: FitRow) -> str:
    """The fit's own words, unless it is so far off that they would mislead."""
    if fit.max_error is None or fit.max_error <= POOR_FIT:
        return fit.reading
    return (
        f"On {fit.called(settings.label(fit.device))} the model of two constants, which explains "
        f"the published numbers, is off by up to {text.share(fit.max_error)}: something else "
        "counts there, such as cores that workers and training share."
    )


def checked(claims: Sequence[ClaimRow]) -> list[Said]:
    """How many of the source's claims agree with its own table, and hold here."""
    if not claims:
        return []
    printed = [claim for claim in claims if claim.published_verdict and claim.published_value]
    agree = sum(claim.published_verdict == "consistent" for claim in printed)
    verdicts = [claim.verdict for claim in claims]
    held, broken = verdicts.count("holds"), verdicts.count("does not")
    of_source = (
        f"Of the ratios that the source prints, {agree} of {len(printed)} agree with its own "
        "table. "
    )
    said = (
        f"Measured here: of {len(verdicts)}, {held} held, {broken} did not, and for "
        f"{len(verdicts) - held - broken} there are no data here."
    )
    return [("Claims", of_source * bool(printed) + said)]
