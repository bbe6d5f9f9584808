"""Facts of a tiny model and of the first rows that it sees: PREPARED CHECKPOINT|- [SAVE-TO]."""

import json
import sys
from pathlib import Path

import torch
import transformers

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.loading.dataset import PairDataset, collate
from feedrate.models.build import build, build_bare
from feedrate.models.flops import count_flops

prepared, checkpoint, *target = sys.argv[1:]
transformers.set_seed(3)
settings = ModelSettings(
    name="bridgetower", size="tiny", checkpoint=None if checkpoint == "-" else checkpoint
)
loader = LoaderSettings(max_tokens=8)
built = build(settings, loader, Path(prepared))
if target:
    built.model.save_pretrained(target[0])
    built.tokenizer.save_pretrained(target[0])
rows = PairDataset(Path(prepared), "train", built, loader)
batch = collate([rows[i] for i in range(4)])
built.model.eval()
with torch.no_grad():
    loss = float(built.model(**batch).loss)
facts = {
    "transformers": transformers.__version__,
    "parameters": built.parameters,
    "input_ids": batch["input_ids"].tolist(),
    "attention_mask": batch["attention_mask"].tolist(),
    "pixels": batch["pixel_values"].double().sum().item(),
    "loss": loss,
}
if target:  # once in each version of transformers
    large = build_bare(ModelSettings(name="bridgetower", size="large"), loader, Path(prepared))
    facts["large_gflops"] = count_flops(large, 128) / 1e9
    facts["large_parameters"] = large.parameters
print()
print(json.dumps(facts))
