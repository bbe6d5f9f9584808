"""Models and data are the same in both versions of transformers, and go from one to the other."""

import json
import subprocess

import pytest
from gaudi_software import HERE, PYTHONPATH, run_inside

import warm

PROGRAM = str(HERE / "inside/model_facts.py")


def facts_here(*arguments):
    """What the program says in this environment, with transformers 5."""
    answer = subprocess.run(
        [warm.python(), PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def both(prepared, tmp_path_factory):
    """Facts of one model made by transformers 5, as 5 and 4.55 see it; and the other way round."""
    five, four = (str(tmp_path_factory.mktemp(name) / "model") for name in ("five", "four"))
    made_by_5 = facts_here(str(prepared), "-", five)
    made_by_4 = run_inside("model_facts.py", str(prepared), "-", four)
    return {
        "5 to 4": (made_by_5, run_inside("model_facts.py", str(prepared), five)),
        "4 to 5": (made_by_4, facts_here(str(prepared), four)),
    }


def test_the_versions_are_those_that_are_meant(both):
    assert both["5 to 4"][0]["transformers"].startswith("5.")
    assert both["5 to 4"][1]["transformers"].startswith("4.55.")
    assert both["4 to 5"][1]["transformers"].startswith("5.")
    assert PYTHONPATH


@pytest.mark.parametrize("way", ["5 to 4", "4 to 5"])
@pytest.mark.parametrize("what", ["parameters", "input_ids", "attention_mask", "pixels"])
def test_a_checkpoint_of_one_version_is_the_same_in_the_other(both, way, what):
    made, loaded = both[way]
    assert loaded[what] == made[what]


@pytest.mark.parametrize("way", ["5 to 4", "4 to 5"])
def test_the_same_weights_give_the_same_loss(both, way):
    made, loaded = both[way]
    assert loaded["loss"] == pytest.approx(made["loss"], rel=1e-5)


def test_flops_of_the_large_model_are_the_same(both):
    five, four = both["5 to 4"][0], both["4 to 5"][0]
    assert five["large_gflops"] == four["large_gflops"] == pytest.approx(1488.86, rel=1e-3)
    assert five["large_parameters"] == four["large_parameters"]
