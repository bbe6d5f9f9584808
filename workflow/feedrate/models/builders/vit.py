"""Vision transformers for classification at 16 px patches, from the library's own layers."""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers.modeling_outputs import ImageClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.vit.configuration_vit import ViTConfig
from transformers.models.vit.modeling_vit import ViTForImageClassification, ViTLayer

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.data.manifest import SAMPLES
from feedrate.models.build import Built, ModelError, load_config, load_model
from feedrate.models.layers import IMAGENET, tower

TASK = "image-classification"
OFFERS = {
    "attention": ("eager", "sdpa", "flash"),
    "image_px": {"from": 16, "to": 1024, "step": 16},
    "head": ("token", "pooled"),
    "layout": ("batch_first", "batch_second"),
}
SIZES = {
    # Hidden size, layers, heads.
    "tiny": (128, 4, 2),  # for CPUs: 1.1 M parameters, 1.3 GFLOP an image
    # The ViT paper's table 1.
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}

PATCH_PX = 16
IMAGE_PX = 224
CLASSES = 1000  # as in ImageNet-1K, so that parameters and FLOPs equal the published ones
UNKNOWN = -100  # the class of a value that the training split lacks; cross-entropy ignores it


class ClassTokenizer:
    """A classifier's vocabulary: one token per row, the number of its class."""

    def __init__(self, prepared: Path, column: str, outputs: int) -> None:
        """The classes are the distinct values of a column in the training split, sorted. Raises
        ModelError if there are none, or more than the model has `outputs`."""
        path = prepared / SAMPLES
        columns = pq.read_schema(path).names
        if column not in columns:
            raise ModelError(f"loader.label: {path} has no column {column!r}; it has {columns}")
        training = [("split", "=", "train")]
        values = pq.read_table(path, columns=[column], filters=training)[column].to_pylist()
        classes = sorted({value for value in values if value is not None})
        if not classes:
            raise ModelError(f"loader.label: the column {column!r} is empty in {path}")
        if len(classes) > outputs:
            counts = f"{len(classes)} values, the model has {outputs} classes"
            raise ModelError(f"loader.label: the column {column!r} has {counts}")
        self.names = [str(value) for value in classes]
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __call__(self, texts: Sequence[str], **_: Any) -> dict[str, Tensor]:
        """input_ids (rows, 1): the class of each text; attention_mask (rows, 1): ones."""
        numbers = torch.tensor([[self._numbers.get(text, UNKNOWN)] for text in texts])
        return {"input_ids": numbers, "attention_mask": torch.ones_like(numbers)}


class PatchTokens(nn.Module):
    """Patches with their positions and no class token: (batch, patches, hidden)."""

    def __init__(self, config: ViTConfig, patch_embeddings: nn.Module) -> None:
        super().__init__()
        patches = (config.image_size // PATCH_PX) ** 2
        self.patch_embeddings = patch_embeddings
        self.position_embeddings = nn.Parameter(torch.empty(1, patches, config.hidden_size))
        nn.init.trunc_normal_(self.position_embeddings, std=config.initializer_range)

    def forward(self, pixel_values: Tensor, **_: Any) -> Tensor:
        """Embed images (batch, 3, px, px)."""
        return self.patch_embeddings(pixel_values) + self.position_embeddings


class Classifier(metaclass=ABCMeta):
    """A classifier of images as a model of pairs; the only token of a row is its class. Its base is
    `object`: sharding replaces a model's class, which Python permits only between equal layouts."""

    @abstractmethod
    def logits(self, pixels: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, 3, px, px)."""

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,  # noqa: ARG002
        return_loss: bool = True,
    ) -> ImageClassifierOutput:
        """Logits (batch, classes) of images (batch, 3, px, px); `input_ids` (batch, 1): classes."""
        logits = self.logits(pixel_values)
        if not return_loss or input_ids is None:
            return ImageClassifierOutput(logits=logits)
        classes = input_ids[:, 0]
        # The library's mean would be NaN for a batch without a known class.
        count = (classes != UNKNOWN).sum().clamp(min=1)
        loss = cross_entropy(logits.float(), classes, reduction="sum") / count
        return ImageClassifierOutput(loss=loss, logits=logits)


class Vit(Classifier, ViTForImageClassification):
    """A vision transformer whose blocks may see the batch as the second dimension."""

    def __init__(self, config: ViTConfig, head: str = "token", layout: str = "batch_first") -> None:
        """`head` and `layout`: see ModelSettings."""
        super().__init__(config)
        self.pooled = head == "pooled"
        if self.pooled:
            self.vit.embeddings = PatchTokens(config, self.vit.embeddings.patch_embeddings)
        if layout == "batch_second":
            # Attention between these two sees (tokens, batch, hidden): see `LAYOUTS`.
            first = next(m for m in self.vit.modules() if isinstance(m, ViTLayer))
            first.register_forward_pre_hook(_swap_first_input)
            self.vit.layernorm.register_forward_pre_hook(_swap_first_input)

    def logits(self, pixels: Tensor) -> Tensor:
        """See `Classifier`."""
        tokens = self.vit(pixels).last_hidden_state
        return self.classifier(tokens.mean(dim=1) if self.pooled else tokens[:, 0])


def build(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """Build ViT; see `models/build.py`."""
    switches = {"head": settings.head, "layout": settings.layout}
    if settings.checkpoint is None:
        config = make_config(settings.size, settings.image_px or IMAGE_PX)
        model = Vit(config, **switches)
    else:
        config = load_config(ViTConfig, settings)
        if settings.image_px not in (None, config.image_size):
            size = f"the checkpoint is for {config.image_size} px; give that or null"
            raise ModelError(f"model.image_px: {size}")
        model = load_model(Vit, settings, config, **switches)
    attention: str = settings.attention
    if settings.layout != "batch_first" or attention == "flash":
        # By this name transformers finds our attention; `running_attention` reads its last part.
        attention = f"feedrate_{settings.layout}_{attention}"
    model.config._attn_implementation = attention
    return built_classifier(model, ViTLayer, prepared, loader.label)


def built_classifier(model: Any, layer: type[nn.Module], prepared: Path, label: str) -> Built:
    """A classifier of the values of the column `label`. Raises ModelError as ClassTokenizer."""
    return Built(
        model=model,
        tokenizer=ClassTokenizer(prepared, label, model.config.num_labels),
        image_px=model.config.image_size,
        **IMAGENET,
        other_outputs=("hidden_states", "attentions"),
        layers=(layer,),
        column=label,
        scores="accuracy",
    )


def make_config(size: str, image_px: int = IMAGE_PX) -> ViTConfig:
    """The configuration of a size for images of `image_px`."""
    hidden, layers, heads = SIZES[size]
    sizes = {"image_size": image_px, "patch_size": PATCH_PX, "num_labels": CLASSES}
    return ViTConfig(**tower(hidden, heads, layers), **sizes)


def _swap_first_input(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (inputs[0].transpose(0, 1), *inputs[1:])


def _eager(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention over (batch, heads, tokens, dim), step by step like the library's eager mode."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype) @ value


def _flash(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The flash kernel, or an error: torch would otherwise silently use another kernel."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(query, key, value)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
ATTEND: dict[str, Attend] = {"eager": _eager, "sdpa": scaled_dot_product_attention, "flash": _flash}

LAYOUTS = {
    "batch_first": ((0, 1, 2, 3), (0, 2, 1, 3)),
    # Between layers that keep (tokens, batch, hidden), the library's (tokens, heads, batch, dim) is
    # a view of the projections' output, in which batch and heads are adjacent. They merge into one
    # dimension of a batched matrix multiply without the copies that the batch-first layout needs.
    "batch_second": ((2, 1, 0, 3), (2, 0, 1, 3)),
}
"""How the library's query, key and value become (batch, heads, tokens, dim), and how the mixed
values become what it wants: (batch, tokens, heads, dim), or (tokens, batch, heads, dim)."""


def in_layout(attend: Attend, layout: str) -> Callable[..., tuple[Tensor, None]]:
    """`attend` as an attention of the library."""
    inward, outward = LAYOUTS[layout]

    def forward(
        _module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, None]:
        mixed = attend(*(states.permute(inward) for states in (query, key, value)))
        return mixed.permute(outward), None

    return forward


for _layout, (_name, _attend) in product(LAYOUTS, ATTEND.items()):
    ALL_ATTENTION_FUNCTIONS.register(f"feedrate_{_layout}_{_name}", in_layout(_attend, _layout))
