"""Models on torch's meta device, without memory: FLOPs, a device's arithmetic, sizes of states."""

import copy
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

from feedrate.config.settings import TrainSettings
from feedrate.devices.host import GIB
from feedrate.models.build import Built
from feedrate.models.layers import stop_exchanges

ATTENTION: Any = functional.scaled_dot_product_attention  # also while `attend` replaces it


class NoValues(TorchFunctionMode):
    """Answers code that uses a mask as an index: it takes, of each row, as many places as the model
    hides (`model.hidden`), and by a mask of whole rows, all."""

    model: Any = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            values, index, *new_values = args
            mask, *columns = index if isinstance(index, tuple) else (index,)
            if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.is_meta:
                if new_values:
                    return values.masked_fill_(mask, *new_values)
                rows, *width = mask.shape
                count = rows * self.model.hidden(*width) if width else rows
                places = torch.empty(count, dtype=torch.long, device="meta")
                return values.flatten(0, mask.ndim - 1)[(places, *columns)]
        return func(*args, **(kwargs or {}))


@cache
def returns_new(func: Any) -> bool:
    """Whether an operation changes no argument and returns no view of one."""
    if func is torch.ops.aten._unsafe_view.default:  # its schema does not say that it does
        return False
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
                tensors = tuple(
                    form and torch.empty_strided(*form[:2], dtype=form[2], device="meta")
                    for form in forms
                )
                return tensors[0] if len(tensors) == 1 else tensors
            result = func(*args, **kwargs)
            results = result if isinstance(result, tuple) else (result,)
            if all(
                value is None or (isinstance(value, Tensor) and value.is_meta) for value in results
            ):
                self._forms[key] = [value if value is None else form_of(value) for value in results]
            return result


class Counter(Operations):
    """Sums FLOPs by torch's formulas. (Its FlopCounterMode takes longer, and each job waits.)"""

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
    for inference, forward. Counting takes 0.4 s (tiny) to 10 s (10B). Attention, checkpointing and
    precision of a run change nothing; padding changes less than 0.3% in FLAVA."""
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
    """Fused attention as one kernel, as on a GPU. Mask and dropout keep next to nothing."""
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
        self.casts: dict[int, Tensor] | None = None
        self._cpu, self._dtypes = cpu, dict[Any, torch.dtype]()
        if half:
            self._dtypes |= dict.fromkeys(self.IN_HALF, half)
            self._dtypes |= {} if cpu else dict.fromkeys(self.IN_FP32, torch.float32)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.dropout and not self._cpu and kwargs["training"] and kwargs["p"]:
            return torch.native_dropout(args[0], kwargs["p"], True)[0]
        if func is ATTENTION:
            return attend(*args)
        if dtype := self._dtypes.get(func):
            args, kwargs = tree_map_only(Tensor, lambda v: self._cast(v, dtype), (args, kwargs))
        return func(*args, **kwargs)

    def _cast(self, value: Tensor, dtype: torch.dtype) -> Tensor:
        if not value.is_floating_point():
            return value
        if self.casts is None or not (value.requires_grad and value.is_leaf):
            return value.to(dtype)
        if id(value) not in self.casts:
            self.casts[id(value)] = value.to(dtype)
        return self.casts[id(value)]


STATES_LIKE_WEIGHTS = (
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
    weight_bytes = 2 if train.precision.endswith("_full") else 4
    like_weights = weight_bytes if train.optimizer in STATES_LIKE_WEIGHTS else 0
    state_bytes = 2 * STATE_BYTES.get(train.optimizer, like_weights)
    unit = GIB * count if train.strategy == "fsdp" else GIB
    total = sum(p.numel() for p in model.parameters()) / unit
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad) / unit
    return StateGib(weight_bytes * total, weight_bytes * trained, state_bytes * trained)


def check_fits(model: torch.nn.Module, train: TrainSettings, count: int, has_gib: float) -> None:
    """Raise DoesNotFitError if weights and states by themselves exceed `has_gib` on a device."""
    states = sum(states_gib(model, train, count))
    if states > has_gib:
        owner = "for which the host has" if train.cpu_offload else "which has"
        raise DoesNotFitError(
            "out of memory before the first batch: weights, gradients and optimizer states take "
            f"{states:.3g} GiB a device, {owner} {has_gib:.3g}"
        )
