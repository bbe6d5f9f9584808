"""Command lines of the library's example script, one a line, in; out what its own parser makes of
each, and the rest, which is for the script."""

import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

from optimum.habana import GaudiConfig, GaudiTrainingArguments
from transformers import HfArgumentParser

# `Habana/clip` is a repository of a hub, where bf16 is asked for: here a folder of that name.
os.chdir(mkdtemp())
GaudiConfig(use_fused_adam=True, use_fused_clip_norm=True, use_torch_autocast=True).save_pretrained(
    Path("Habana/clip")
)
parser = HfArgumentParser(GaudiTrainingArguments)
answers = []
for line in sys.stdin:
    arguments, rest = parser.parse_args_into_dataclasses(
        shlex.split(json.loads(line)), return_remaining_strings=True
    )
    config = vars(GaudiConfig.from_pretrained(arguments.gaudi_config_name))
    answers.append({"arguments": asdict(arguments), "config": config, "rest": rest})
print(json.dumps(answers, default=str))
