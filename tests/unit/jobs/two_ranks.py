"""Run by torchrun, or alone, from test_two_ranks.py: trains without dropout and leaves the weights.

`two_ranks.py <prepared> <out> <ranks> <accumulation>`. Each rank leaves
`weights.<rank>.safetensors`, its events, and `stopwatch.<rank>.json`: the least and the most time
of the window, by a stopwatch.
"""

import json
import sys
import time
from pathlib import Path

from safetensors.torch import save_file
from script_job import make_rank
from stopwatch import Stopwatch
from training_jobs import make_spec

STEPS, WARMUP = 6, 2


class Sleeping(Stopwatch):
    """Sleeps in each step, longer on later ranks."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.sleep_s = 0.2 + 0.1 * rank

    def on_pre_optimizer_step(self, *args, **kwargs):
        time.sleep(self.sleep_s)
        super().on_pre_optimizer_step(*args, **kwargs)


def main(prepared: Path, out: Path, ranks: int, accumulation: int) -> None:
    """Train six steps."""
    spec = make_spec(count=ranks, accumulation=accumulation, steps=STEPS, warmup_steps=WARMUP)
    log, _, trainer = make_rank(spec, prepared, out, dropout=False)
    stopwatch = Sleeping(log.rank)
    trainer.add_callback(stopwatch)
    trainer.train()
    (out / f"stopwatch.{log.rank}.json").write_text(json.dumps(stopwatch.between(WARMUP, STEPS)))
    state = {name: tensor.contiguous() for name, tensor in trainer.model.state_dict().items()}
    save_file(state, out / f"weights.{log.rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
