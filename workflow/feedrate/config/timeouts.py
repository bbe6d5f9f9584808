"""How long a job may take.

It travels by an environment variable: it is no part of a run, so that a longer one trains nothing
anew that has ended.
"""

import json
import os
from collections.abc import Mapping

from feedrate import variables
from feedrate.config.settings import TIMEOUT_MIN, RunSpec


def timeout_min(spec: RunSpec, environment: Mapping[str, str] = os.environ) -> float:
    """Minutes that a job of this run may take; untold, what a study has by default."""
    told = json.loads(environment.get(variables.TIMEOUTS) or "{}")
    return float(told.get(spec.study, {}).get(spec.device, TIMEOUT_MIN))
