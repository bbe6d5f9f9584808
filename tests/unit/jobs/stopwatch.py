"""A stopwatch that is held against the meter."""

import time
from typing import Any

from transformers import TrainerCallback


class Stopwatch(TrainerCallback):
    """Times around each step's end, apart from the meter, which is called between them."""

    def __init__(self) -> None:
        self.before_s: dict[int, float] = {}
        self.after_s: dict[int, float] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.before_s[state.global_step + 1] = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.after_s[state.global_step] = time.perf_counter()

    def between(self, first: int, last: int) -> tuple[float, float]:
        """The least and the most time from the end of one step to that of another."""
        least_s = self.before_s[last] - self.after_s[first]
        return least_s, self.after_s[last] - self.before_s[first]
