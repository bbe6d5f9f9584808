"""The same model, data and Trainer arguments with the stock Trainer and nothing around it."""

import json
import sys
from pathlib import Path

import msgspec

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import RunSpec


def main(spec_path: str, prepared: str, out: str) -> None:
    """Train as the spec says."""
    import transformers

    from feedrate.jobs.trainer import shared_arguments
    from feedrate.loading.dataset import PairDataset, collate
    from feedrate.models.build import build

    spec = msgspec.convert(json.loads(Path(spec_path).read_text()), RunSpec)
    transformers.set_seed(spec.seed)
    built = build(spec.settings.model, spec.settings.loader, Path(prepared))
    loader = LoaderSettings(max_tokens=spec.settings.loader.max_tokens)
    dataset = PairDataset(Path(prepared), "train", built, loader)
    given = shared_arguments(spec, Path(out), ["tensorboard"])
    arguments = transformers.TrainingArguments(**given, use_cpu=True, bf16=False)
    trainer = transformers.Trainer(
        model=built.model, args=arguments, train_dataset=dataset, data_collator=collate
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
