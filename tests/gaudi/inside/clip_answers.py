"""How far CLIP's answers move when the library has adapted models to Gaudi."""

import json

import torch

from feedrate.devices.base import adapter
from feedrate.models.builders.clip import Clip, make_config
from feedrate.models.flops import one_pair


def answers() -> torch.Tensor:
    """Embeddings of two texts and two images, from weights of one seed."""
    torch.manual_seed(0)
    model = Clip(make_config("tiny")).eval()
    side = model.config.vision_config.image_size
    batch = {name: value.expand(2, *value.shape[1:]) for name, value in one_pair(side, 8).items()}
    batch["pixel_values"] = torch.rand(2, 3, side, side)
    with torch.inference_mode():
        made = model(**batch, return_loss=False)
    return torch.cat([made.text_embeds, made.image_embeds])


before = answers()
adapter("hpu")
print(json.dumps({"off": float((answers() - before).abs().max())}))
