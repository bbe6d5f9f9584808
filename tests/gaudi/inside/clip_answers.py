"""How far CLIP's answers move when the library has adapted models to Gaudi."""

import json

import torch

from feedrate.devices.base import adapter
from feedrate.models.builders.clip import Clip, make_config


def answers() -> torch.Tensor:
    """Embeddings of two texts and two images, from weights of one seed."""
    torch.manual_seed(0)
    model = Clip(make_config("tiny")).eval()
    side = model.config.vision_config.image_size
    text = torch.ones(2, 8, dtype=torch.long)
    pixels = torch.rand(2, 3, side, side)
    batch = {"pixel_values": pixels, "input_ids": text, "attention_mask": text}
    with torch.inference_mode():
        made = model(**batch, return_loss=False)
    return torch.cat([made.text_embeds, made.image_embeds])


before = answers()
adapter("hpu")
print(json.dumps({"off": float((answers() - before).abs().max())}))
