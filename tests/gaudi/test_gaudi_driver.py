"""The vendor's own packages as the contract; only their native libraries are replaced."""

import os
import re
from pathlib import Path

import pytest
import yaml
from gaudi_software import PYTHON, ROOT, WITH_MEDIA, run_inside

LICENCE = "FEEDRATE_ACCEPT_INTEL_MEDIA_LICENCE"
"""Set it to `yes` to state that you accept the licence of habana-media-loader, and install that
package into .venv-gaudi yourself. It forbids publishing benchmark results of that software."""

SITE = next(iter(PYTHON.parents[1].glob("lib/python3*/site-packages")), Path())


@pytest.mark.skipif(
    not (SITE / "pyhlml").is_dir(),
    reason="no habana-pyhlml in .venv-gaudi: `make .venv-gaudi/.ready` installs it",
)
def test_energy_and_names_come_through_the_vendors_package():
    without, joules, names, lost, gone = run_inside("pyhlml_calls.py")
    assert without is None, "without the driver's library the energy is unknown, and no error"
    assert joules == {"5": 3.0, "2": 7.5, "0": None, "None": None}
    assert (lost, gone) == (None, None)
    registry = yaml.safe_load((ROOT / "config/devices.yaml").read_text())
    found = [name for name, entry in registry.items()
             if re.fullmatch(entry.get("model_pattern", ""), names[0])]  # fmt: skip
    assert found == ["gaudi2"]
    assert len(names) == 2


def test_the_program_for_the_vendors_media_package_runs_on_our_stand_in(prepared):
    """Which has no build steps after the graph."""
    bases, outputs, ran = run_inside(
        "media_pipeline.py", str(prepared), "10", PYTHONPATH=WITH_MEDIA
    )
    assert "habana_frameworks.mediapipe.mediapipe" in bases
    assert len(outputs) == 3
    assert ran == ["definegraph"]


@pytest.mark.skipif(
    os.environ.get(LICENCE) != "yes",
    reason=f"habana-media-loader has Intel's own licence: set {LICENCE}=yes if you accept it",
)
def test_the_vendors_code_makes_our_pipeline(prepared):
    assert (SITE / "habana_frameworks/mediapipe").is_dir(), "install habana-media-loader first"
    bases, outputs, ran = run_inside("media_pipeline.py", str(prepared), "10")
    assert "habana_frameworks.mediapipe.mediapipe" in bases
    assert len(outputs) == 3
    assert all(name.startswith("habana_frameworks.mediapipe") for name in outputs)
    assert ran == ["definegraph", "create_opnodes", "segment_graph", "process_and_validate_graph"]
