"""The device's generators: the CPU's."""

from typing import Any

import torch


def manual_seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.random.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.random.set_rng_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    set_rng_state(states[0])
