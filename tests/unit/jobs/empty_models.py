"""Run by torchrun from test_empty_models.py: shards a model, and writes the memory it took.

`empty_models.py <prepared> <out>`. Each rank writes `memory.<rank>.json`: the size of the weights,
and by how much its peak grew while it built and while it sharded the model, MiB.
"""

import json
import resource
import sys
from pathlib import Path

import torch
from training_jobs import make_spec

from feedrate.devices.base import adapter
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.train import build_for_training
from feedrate.jobs.trainer import make_trainer
from feedrate.loading.dataset import PairDataset
from feedrate.models.builders import flava

MIB = 2**20


def peak_mib() -> float:
    """Peak of this process's resident memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(prepared: Path, out: Path) -> None:
    """Build and shard, without a step."""
    rank, _, local_rank, local_ranks = rank_from_environment()
    torch.set_num_threads(1)
    flava.SIZES["tiny"] = (512, 2048, 4, 8, 4)
    train = {"batch_size": 2, "precision": "bf16", "strategy": "fsdp"}
    spec = make_spec(count=2, model={"name": "flava"}, train=train)
    device = adapter("cpu", local_rank, local_ranks)
    grown = [peak_mib()]
    built = build_for_training(spec, device, prepared, rank)
    size_mib = 4 * built.parameters / MIB
    grown.append(peak_mib())
    dataset = PairDataset(prepared, "train", built, spec.settings.loader)
    trainer = make_trainer(spec, device, out, None, built, dataset)
    del built
    trainer._prepare_for_training(1, trainer.get_train_dataloader(), None)
    grown.append(peak_mib())
    memory = {"size": size_mib, "built": grown[1] - grown[0], "sharded": grown[2] - grown[0]}
    (out / f"memory.{rank}.json").write_text(json.dumps(memory))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
