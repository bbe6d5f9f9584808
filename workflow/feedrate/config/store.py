"""What a store of decoded pictures is made for: the plan names its folder by this."""

from typing import Annotated

import msgspec
from msgspec import Meta

from feedrate.config.base import Strict
from feedrate.config.settings import ModelSettings, Settings
from feedrate.files import digest_value

STORE_SCHEMA = 1
"""Version of the files; raise it when they change."""


class StoreSpec(Strict, kw_only=True):
    """All that a store depends on beside its data; another one is made when this changes."""

    schema: int = STORE_SCHEMA
    model: Annotated[
        ModelSettings, Meta(description="What its size of image and its tokenizer follow from.")
    ]
    max_tokens: int
    label: Annotated[str, Meta(description="Column with the classes, for a classifier.")]
    scaled_decode: bool
    whole: Annotated[
        bool,
        Meta(description="Whole pictures, larger than the crop, so that it can be a random one."),
    ]

    @property
    def key(self) -> str:
        """The store's name among those of a dataset."""
        return digest_value(msgspec.to_builtins(self))[:12]


def store_spec(settings: Settings) -> StoreSpec | None:
    """The store that a run with these settings needs; None: none."""
    loader = settings.loader
    if loader.decode != "cache":
        return None
    model = settings.model
    return StoreSpec(
        # The rest (attention, layout, …) changes neither pixels nor tokens.
        model=ModelSettings(
            name=model.name,
            size=model.size,
            checkpoint=model.checkpoint,
            revision=model.revision,
            image_px=model.image_px,
        ),
        max_tokens=loader.max_tokens,
        label=loader.label,
        scaled_decode=loader.scaled_decode,
        whole=loader.random_crop > 0,
    )
