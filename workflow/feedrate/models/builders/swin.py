"""Swin transformers for classification at 4 px patches, from the library's own classes."""

from pathlib import Path

from torch import Tensor
from transformers.models.swin.configuration_swin import SwinConfig
from transformers.models.swin.modeling_swin import SwinForImageClassification, SwinLayer

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import Built, load_config, load_model
from feedrate.models.builders.vit import CLASSES, Classifier, built_classifier

TASK = "image-classification"
SIZES = {
    # Hidden size of the first stage, layers and heads of each stage.
    "tiny": (32, (2, 2, 2), (1, 2, 4)),  # for CPUs; not the paper's Swin-T
    # The Swin paper's section 3.3: Swin-B.
    "base": (128, (2, 2, 18, 2), (4, 8, 16, 32)),
}


class Swin(Classifier, SwinForImageClassification):
    """A hierarchical vision transformer with shifted windows."""

    def logits(self, pixels: Tensor) -> Tensor:
        """See `Classifier`."""
        return self.classifier(self.swin(pixels.to(self.classifier.weight.dtype)).pooler_output)


def build(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """Build Swin; see `models/build.py`."""
    fresh = settings.checkpoint is None
    config = make_config(settings.size) if fresh else load_config(SwinConfig, settings)
    model = Swin(config) if fresh else load_model(Swin, settings, config)
    return built_classifier(model, SwinLayer, prepared, loader.label)


def make_config(size: str) -> SwinConfig:
    """The configuration of a size, for 224 px."""
    hidden, layers, heads = SIZES[size]
    shape = {"embed_dim": hidden, "depths": list(layers), "num_heads": list(heads)}
    return SwinConfig(num_labels=CLASSES, attn_implementation="eager", **shape)
