"""The process that scores, in the device's own software: `python -m feedrate.jobs.score_worker`.

It leaves a JSON object with the keys of quality.json, whatever happens; the entry
(`python -m feedrate.jobs.score`) starts it.
"""

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from feedrate.config.reading import convert
from feedrate.config.spec import RunSpec
from feedrate.core.errors import Masker
from feedrate.core.files import write_json
from feedrate.core.paths import SPEC_NAME
from feedrate.core.processes import die_with_supervisor
from feedrate.devices.base import prepare_process
from feedrate.devices.placement import bind_rank
from feedrate.jobs.failure import classify


def main(arguments: list[str] | None = None) -> int:
    """0 where the model was scored; 1 where the answer says why not."""
    die_with_supervisor()
    parser = argparse.ArgumentParser(prog="feedrate.jobs.score_worker", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, required=True, help="with spec.json; for answer.json"
    )
    parser.add_argument("--model", type=Path, required=True, help="folder of the trained weights")
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--winoground", type=Path, help="examples.json")
    options = parser.parse_args(arguments)
    answer = options.folder / "answer.json"
    try:
        write_json(answer, {"status": "ok", **_score(options)})
    except Exception as error:
        mask = Masker()
        print(mask(traceback.format_exc()), file=sys.stderr)
        write_json(answer, {"status": "failed", "cause": mask(classify(error).message)})
        return 1
    return 0


def _score(options: argparse.Namespace) -> dict[str, Any]:
    origin = options.folder / SPEC_NAME
    spec = convert(json.loads(origin.read_text(encoding="utf-8")), RunSpec, str(origin))
    bind_rank(spec.kind, 0, 1)
    prepare_process(spec, options.folder)
    # Heavy, and only for a process that is where it stays.
    from feedrate.jobs.score_model import score_model

    return score_model(spec, options.data, options.model, options.winoground)


if __name__ == "__main__":
    sys.exit(main())
