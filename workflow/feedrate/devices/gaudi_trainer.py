"""optimum-habana's Trainer with what its version 1.21.2 gets wrong put right."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from optimum.habana import GaudiTrainer
from optimum.habana.transformers import trainer as library

_PROFILE = library.HabanaProfile


class JobTrainer(GaudiTrainer):
    """GaudiTrainer for a training job."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.args.use_compiled_autograd:  # the library hands it to DeepSpeed alone
            torch._dynamo.config.compiled_autograd = True
        # As delivered, traces of all runs fall into one folder below the working folder.
        folder = Path(self.args.output_dir) / "hpu_profile"
        library.HabanaProfile = partial(_PROFILE, output_dir=str(folder))

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The batches of one optimizer step, by transformers' own name for it."""
        return super().get_batch_samples_transformers(*args, **kwargs)

    def get_batch_samples_transformers(self, *args: Any, **kwargs: Any) -> Any:
        """The name that GaudiTrainer's loop calls."""
        return self.get_batch_samples(*args, **kwargs)

    def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """The loss, as this micro-step's share of the step's mean.

        GaudiTrainer itself divides by the accumulation only with `pipelining_fwd_bwd`; without it,
        gradients would be as many times too large.
        """
        loss = super().compute_loss(model, *args, **kwargs)
        divides = self.args.use_lazy_mode and self.args.pipelining_fwd_bwd
        if model.training and not divides:
            return loss / self.current_gradient_accumulation_steps
        return loss

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predict; its rate counts all steps, for those left out may be more than there are."""
        warmup, self.args.throughput_warmup_steps = self.args.throughput_warmup_steps, 0
        try:
            return super().predict(*args, **kwargs)
        finally:
            self.args.throughput_warmup_steps = warmup
