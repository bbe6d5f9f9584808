"""What is scored: the models that runs keep, and the table of what they score."""

from collections.abc import Callable
from typing import Any

import msgspec

from feedrate import paths
from feedrate.config.plan import Plan, Project, keeps_weights
from feedrate.config.settings import RunSpec
from feedrate.plan_attempts import Attempts
from feedrate.results.qualities import QualitySettings, ScoredRun

Params = dict[str, Any]


class Scored:
    """Answers for the rules that score models and collect the scores."""

    def __init__(
        self,
        project: Project,
        plan: Plan,
        attempts: Attempts,
        params: Callable[[dict[str, Any], str], Params],
    ) -> None:
        """`params` makes a rule's params of settings and the name of its code."""
        self._project, self._plan = project, plan
        self._attempts, self._params = attempts, params

    def files(self, study: str) -> list[str]:
        """The scores of each model that a study's runs keep."""
        return [_of_run(paths.QUALITY, spec) for spec in self._kept(study)]

    def table(self, study: str) -> list[str]:
        """The study's table of scores; none where no run keeps a model."""
        return [paths.QUALITY_CSV.format(study=study)] if self._kept(study) else []

    def scoring(self, study: str, device: str, cell: str, repeat: str) -> Params:
        """All that makes a model be scored again, but the run's outcome and data, which are
        inputs."""
        spec = self._plan.runs[study, device, cell, int(repeat)]
        return {
            **self._params(msgspec.to_builtins(spec), "scored"),
            "model": _of_run(paths.MODEL, spec),
            "attempt": self._attempts.next(_of_run(paths.QUALITY, spec)),
        }

    def collecting(self, study: str) -> Params:
        """Which run each file of scores belongs to."""
        runs = [
            ScoredRun(
                file=_of_run(paths.QUALITY, spec),
                device=spec.device,
                cell=spec.cell,
                levels=spec.levels,
                repeat=spec.repeat,
            )
            for spec in self._kept(study)
        ]
        factors = self._project.studies[study].factors
        settings = QualitySettings(study=study, factors=factors, runs=runs)
        return self._params(msgspec.to_builtins(settings), "qualities")

    def _kept(self, study: str) -> list[RunSpec]:
        config = self._project.config
        return [spec for spec in self._plan.of_study(study) if keeps_weights(spec, config)]


def _of_run(path: str, spec: RunSpec) -> str:
    return path.format(study=spec.study, device=spec.device, cell=spec.cell, repeat=spec.repeat)
