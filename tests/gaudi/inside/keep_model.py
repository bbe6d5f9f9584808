"""Save the model that a run of the spec on the input is built with, as training leaves one behind:
`keep_model.py PREPARED FOLDER`."""

import json
import sys
from pathlib import Path

from transformers import set_seed

from feedrate.config.spec import RunSpec
from feedrate.config.values import convert
from feedrate.models.build import build

prepared, folder = map(Path, sys.argv[1:])
spec = convert(json.loads(sys.stdin.readline()), RunSpec, "the input")
set_seed(spec.seed)
built = build(spec.settings.model, spec.settings.loader, prepared)
built.model.save_pretrained(folder)
built.tokenizer.save_pretrained(folder)
print(json.dumps({"parameters": built.parameters}))
