"""The Trainer's own push to the hub, after all measurements of a job."""

import os
import re
from typing import Any

from feedrate.config.spec import RunSpec
from feedrate.core.files import digest_value
from feedrate.jobs.events import EventLog, Note
from feedrate.jobs.worker import note_of

LONGEST = 96
"""Characters in a repository's name that the hub allows."""


def push(trainer: Any, log: EventLog, spec: RunSpec, repository: str, tokenizer: Any) -> None:
    """Push the model, its tokenizer and the Trainer's card to a private repository of its own. A
    note says where, or why not, which is no fault of the run. The token is in HF_TOKEN only."""
    trainer.processing_class, trainer.args.hub_private_repo = tokenizer, True
    trainer.args.hub_model_id = name = repository_of(repository, spec)
    try:
        trainer.save_model()  # all ranks take part, and may have to wait for each other
        if log.rank == 0:
            trainer.save_model = lambda *_, **__: None
            trainer.push_to_hub(token=os.environ["HF_TOKEN"])
            log.write(Note(rank=0, about="push_to_hub", message=f"pushed to {name}"))
    except Exception as error:  # the hub's client raises errors of several libraries
        log.write(note_of(error, "push_to_hub", log.rank))


def repository_of(repository: str, spec: RunSpec) -> str:
    """`me/models-STUDY-DEVICE-CELL` for `me/models`, with the letters that the hub allows."""
    cell = re.sub(r"[^A-Za-z0-9]+", "-", f"{spec.study}-{spec.device}-{spec.cell}")
    name = f"{repository}-{cell}"
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{digest_value(cell)[:8]}"
