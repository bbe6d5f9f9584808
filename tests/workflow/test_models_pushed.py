"""Kept models, from training over their scores and cards to a hub."""

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from mini_project import MINI, Project
from stand_in_hub import COMMIT, stand_in_hub

TOKEN = "hf_secret_of_a_test"
CELL = "workers=0~decode=host"
FACTORS = MINI["factors"] | {"workers": {"sets": "loader.workers", "levels": [0]}}


class Pushing(Project):
    """A project with a hub in its environment."""

    hub: dict[str, str]
    token = TOKEN

    def env(self) -> dict[str, str]:
        return super().env() | self.hub | {"HF_TOKEN": self.token}


@pytest.fixture(scope="module")
def hub():
    """A hub that takes all that is pushed."""
    with stand_in_hub() as hub:
        yield hub


@pytest.fixture
def pushing(ready, hub) -> Pushing:
    """One cell whose model is to be pushed, though the study keeps none."""
    ready.study(factors=FACTORS)
    ready.config(
        push_to_hub="me/models",
        winoground_sets={"generated": {"source": "generated", "examples": 3}},
    )
    made = Pushing(ready.root)
    made.hub = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_TELEMETRY": "1"}
    return made


def texts(root: Path) -> str:
    """All that the run has written and a person or a page could show."""
    return "".join(
        path.read_text(errors="replace")
        for part in ("results", "logs")
        for path in (root / part).rglob("*")
        if path.suffix in (".json", ".jsonl", ".log", ".md", ".csv", ".html", ".txt")
    )


def test_a_model_goes_to_the_hub_with_its_card(pushing, hub):
    done = pushing.run()
    assert done.returncode == 0, done.stdout
    run = pushing.root / f"results/mini/cpu/{CELL}/rep1"
    place = f"mini/cpu/{CELL}"
    page = hub.files.pop("README.md").decode()
    assert f"[`{place}`](" in page
    names = {path.removeprefix(f"{place}/") for path in hub.files}
    assert names >= {"README.md", "model.safetensors", "config.json", "tokenizer.json"}
    assert not [name for name in names if name.endswith(".bin")], "no pickle goes to a hub"
    kept = run / "trainer/model"
    for path, content in hub.files.items():
        assert (kept / path.removeprefix(f"{place}/")).read_bytes() == content
    card = ModelCard(hub.files[f"{place}/README.md"].decode())
    assert card.content == (run / "card.md").read_text()
    scored = {result.metric_type for result in card.data.eval_results}
    assert {"matching_accuracy", "group_score", "image_to_text_recall_at_1"} <= scored
    assert json.loads((run / "pushed.json").read_text())["commit"] == COMMIT
    assert {token for path, token in hub.asked if "/commit/" in path} == {f"Bearer {TOKEN}"}
    assert TOKEN not in done.stdout + texts(pushing.root)
    assert pushing.planned() == {}


def test_without_a_token_nothing_is_started(pushing):
    pushing.token = ""
    done = pushing.run()
    assert done.returncode != 0
    assert "push_to_hub needs a token in the environment variable HF_TOKEN" in done.stdout
    assert not (pushing.root / "results").exists() or not list(
        (pushing.root / "results").rglob("outcome.json")
    )


def test_pushing_is_planned_for_the_first_repeat_of_models_that_are_kept(pushing):
    pushing.study(protocol=MINI["protocol"] | {"repeats": 2})
    planned = pushing.planned()
    assert (planned["train_cpu"], planned["evaluate_cpu"]) == (4, 2)
    assert (planned["write_card"], planned["push_model"]) == (2, 2)
    pushing.config(push_to_hub=None)
    planned = pushing.planned()
    assert planned["train_cpu"] == 4
    assert not planned.keys() & {"evaluate_cpu", "write_card", "push_model", "fetch_winoground"}
    pushing.study(protocol=MINI["protocol"] | {"repeats": 2, "save_checkpoints": True})
    planned = pushing.planned()
    assert (planned["evaluate_cpu"], planned["write_card"]) == (4, 4)
    assert "push_model" not in planned
    assert planned["fetch_winoground"] == 1
    pushing.config(winoground=None)
    assert "fetch_winoground" not in pushing.planned()
