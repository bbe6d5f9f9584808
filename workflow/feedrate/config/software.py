"""What the training processes of a device run in."""

from typing import Annotated

from msgspec import Meta

from feedrate.config.base import Strict


class Software(Strict, kw_only=True):
    """What the training processes of a device run in, on top of the job's own environment."""

    python: Annotated[
        str | None,
        Meta(description="Interpreter of the training processes; null: Snakemake's own."),
    ] = None
    modules: Annotated[
        list[str], Meta(description="Environment modules to load first (`module load`).")
    ] = []
    environment: Annotated[
        dict[str, str], Meta(description="Environment variables to set for the processes.")
    ] = {}
    container: Annotated[
        str | None,
        Meta(description="Apptainer image (a file or docker://…) that the processes run in."),
    ] = None
