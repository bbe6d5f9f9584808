"""Models on torch's meta device, where tensors have a size and no memory: the FLOPs of one sample,
the arithmetic of a device, and the memory of weights and states."""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from feedrate.config.settings import TrainSettings
from feedrate.devices.host import GIB
from feedrate.models.build import Built
from feedrate.models.layers import stop_exchanges

ATTENTION: Any = functional.scaled_dot_product_attention
"""torch's own, also while `attend` replaces it."""


class NoValues(TorchFunctionMode):
    """Answers code that uses a mask as an index: it takes, of each row, as many places as the model
    hides (`model.hidden`), and by a mask of whole rows, all."""

    model: Any = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            values, index, *new = args
            mask, *others = index if isinstance(index, tuple) else (index,)
            if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.is_meta:
                if new:
                    return values.masked_fill_(mask, *new)
                rows, *width = mask.shape
                count = rows * self.model.hidden(*width) if width else rows
                places = torch.empty(count, dtype=torch.long, device="meta")
                return values.flatten(0, mask.ndim - 1)[(places, *others)]
        return func(*args, **(kwargs or {}))


@cache
def returns_new(func: Any) -> bool:
    """Whether an operation changes no argument and returns no view of one."""
    schema = func._schema
    return not any(value.alias_info for value in (*schema.arguments, *schema.returns))


def form_of(value: Any) -> Any:
    """All of an argument that the form of a result depends on."""
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype) if value.is_meta else value
    if isinstance(value, list | tuple):
        return tuple(map(form_of, value))
    return type(value), value


class Operations(TorchDispatchMode):
    """Operations on tensors without values. torch's own need 0.3 ms to find the form of a sum, and
    the layers of a model repeat them: a form that was found is used again."""

    def __init__(self) -> None:
        super().__init__()
        self._forms: dict[Any, list[Any]] = {}

    def result(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operation returns."""
        with torch._C.DisableTorchFunction():
            if not returns_new(func):
                return func(*args, **kwargs)
            key = func, form_of(args), form_of((*kwargs.items(),))
            if forms := self._forms.get(key):
                tensors = [empty(*form) if form else None for form in forms]
                return tensors[0] if len(tensors) == 1 else tuple(tensors)
            result = func(*args, **kwargs)
            results = result if isinstance(result, tuple) else (result,)
            if all(map(whole, results)) and not shares(results, args):
                self._forms[key] = [v if v is None else form_of(v) for v in results]
            return result


def empty(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A new tensor without values."""
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def whole(value: Any) -> bool:
    """Whether a result is a tensor with a storage of its own size, or left out."""
    if not isinstance(value, Tensor):
        return value is None
    alike = empty(value.shape, value.stride(), value.dtype)
    return value.is_meta and value.untyped_storage().nbytes() == alike.untyped_storage().nbytes()


def shares(results: Any, arguments: Any) -> bool:
    """Whether a result is a view of an argument after all (`_unsafe_view`)."""
    places = [
        {v.untyped_storage()._cdata for v in tree_leaves(values) if isinstance(v, Tensor)}
        for values in (results, arguments)
    ]
    return not places[0].isdisjoint(places[1])


class Counter(Operations):
    """Sums FLOPs by torch's formulas. (Its FlopCounterMode also follows the modules, and so takes
    1.5 times as long; each training job waits for the count.)"""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = self.result(func, args, kwargs)
        if count := flop_registry.get(func._overloadpacket):
            self.flops += count(*args, **kwargs, out_val=result)
        return result


def outline_of(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of the model on the meta device."""
    tensors: dict[int, Tensor] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        outline = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, torch.nn.Parameter):
            outline = torch.nn.Parameter(outline, tensor.requires_grad)
        tensors[id(tensor)] = outline
    return copy.deepcopy(model, tensors)


def count_flops(built: Built, max_tokens: int) -> float:
    """FLOPs of a sample of so many tokens, 2 per multiply-add: forward and backward, or, of a head
    for inference, forward. Counting takes 0.4 s (tiny) to 10 s (10B). The texts are full; padded
    ones differ by less than 0.3% in FLAVA. Attention, checkpointing and precision of a run change
    nothing."""
    model = built.outline
    with torch.device("meta"), NoValues() as no_values, stop_exchanges(model):
        no_values.model = model
        batch = empty_batch(built, max_tokens, rows=1)
        with Counter() as counter:
            if any(parameter.requires_grad for parameter in model.parameters()):
                model.train()(**batch, return_loss=True)["loss"].backward()
            else:
                model(**batch)
    return float(counter.flops)


def empty_batch(built: Built, max_tokens: int, rows: int) -> dict[str, Tensor]:
    """A batch of full texts (or classes) and images, on the current default device."""
    side_px, tokens = built.image_px, 1 if built.scores == "accuracy" else max_tokens
    text = torch.ones(rows, tokens, dtype=torch.long)
    images = torch.empty(rows, 3, side_px, side_px)
    return {"pixel_values": images, "input_ids": text, "attention_mask": text.clone()}


def attend(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
    """Fused attention as one kernel, as on a GPU; the meta device would choose the steps of the
    eager form. Mask and dropout move and keep next to nothing."""
    fused = torch.ops.aten._scaled_dot_product_efficient_attention
    return fused(query, key, value, None, True)[0]


class AsOnDevice(TorchFunctionMode):
    """Autocast to `half`, fused attention and dropout, as on a GPU; the meta device has none. On a
    CPU (`cpu`) dropout is not fused, and autocast leaves the functions of `IN_FP32` alone. While
    `casts` is a dict, it keeps the cast weights, as autocast does in a forward pass."""

    IN_HALF = (
        functional.linear, functional.conv2d, functional.multi_head_attention_forward,
        torch.matmul, torch.bmm, Tensor.matmul, Tensor.__matmul__,
    )  # fmt: skip
    IN_FP32 = (
        functional.layer_norm, functional.softmax, functional.log_softmax, torch.softmax,
        functional.cross_entropy, functional.normalize, Tensor.softmax, Tensor.norm,
    )  # fmt: skip

    def __init__(self, half: torch.dtype | None, *, cpu: bool = False) -> None:
        super().__init__()
        wholes = {} if cpu else dict.fromkeys(self.IN_FP32, torch.float32)
        self.casts: dict[int, Tensor] | None = None
        self._to = dict.fromkeys(self.IN_HALF, half) | wholes if half else {}
        self._fused = not cpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.dropout and self._fused and kwargs["training"] and kwargs["p"]:
            return torch.native_dropout(args[0], kwargs["p"], True)[0]
        if func is ATTENTION:
            return attend(*args)
        if to := self._to.get(func):
            args, kwargs = tree_map_only(Tensor, lambda v: self._cast(v, to), (args, kwargs))
        return func(*args, **kwargs)

    def _cast(self, value: Tensor, to: torch.dtype) -> Tensor:
        if not value.is_floating_point():
            return value
        if self.casts is None or not (value.requires_grad and value.is_leaf):
            return value.to(to)
        if id(value) not in self.casts:
            self.casts[id(value)] = value.to(to)
        return self.casts[id(value)]


OF_THE_WEIGHTS = (
    "adamw_torch", "adamw_torch_loop", "adamw_torch_foreach", "adamw_torch_fused",
    "adamw_apex_fused",
)  # fmt: skip
"""Variants of Adam whose states have the precision of the weights."""
STATE_BYTES = {"adamw_torch_8bit": 1, "adamw_8bit": 1, "adamw_bnb_8bit": 1, "adamw_torch_4bit": 0.5}
"""Bytes of each of the two states per parameter in other variants."""


class DoesNotFitError(MemoryError):
    """Weights, gradients and states need more memory than the device has, at any batch size."""


class StateGib(NamedTuple):
    """What a device keeps through a step, GiB."""

    weights: float
    gradients: float
    states: float


def states_gib(model: torch.nn.Module, train: TrainSettings, count: int) -> StateGib:
    """Weights, gradients and optimizer states of one of `count` devices; with `cpu_offload` they
    are in the host's memory. The states of unknown optimizers are left out."""
    weight = 2 if train.precision.endswith("_full") else 4
    known = weight if train.optimizer in OF_THE_WEIGHTS else 0
    state = 2 * STATE_BYTES.get(train.optimizer, known)
    total = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    parts = weight * total, weight * trained, state * trained
    ranks = count if train.strategy == "fsdp" else 1
    return StateGib(*(part / ranks / GIB for part in parts))


def check_fits(model: torch.nn.Module, train: TrainSettings, count: int, has_gib: float) -> None:
    """Raise DoesNotFitError if weights and states by themselves exceed `has_gib` on a device."""
    needed = sum(states_gib(model, train, count))
    if needed > has_gib:
        has = "for which the host has" if train.cpu_offload else "which has"
        take = f"weights, gradients and optimizer states take {needed:.3g} GiB a device"
        why = f"out of memory before the first batch: {take}, {has} {has_gib:.3g}"
        raise DoesNotFitError(why)
