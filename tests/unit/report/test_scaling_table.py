"""Measured rates by the number of devices."""

import re

import msgspec
import pytest
from report_samples import STUDY, make_project, table, with_study, write_results

from feedrate.config.study import Table
from feedrate.report.rows import Inputs


@pytest.fixture
def scaling_page(tmp_path, monkeypatch):
    """The table of scaling for devices of one family, from step times by their number."""
    project = make_project(("cpu", "gaudi2"))
    entry = Table(name="scaling", kind="scaling", title="S", caption="table_scaling")
    inputs = write_results(tmp_path, project)
    (first, *_) = [cell for cell in inputs.cells(STUDY) if cell.device == "cpu"]

    def page(steps_s):
        devices = {
            f"x{count}": msgspec.structs.replace(
                project.devices["cpu"], count=count, variant_of="cpu"
            )
            for count in steps_s
        }
        config = msgspec.structs.replace(project.config, devices=[*devices])
        cells = [
            msgspec.structs.replace(
                first,
                device=f"x{n}",
                world_size=n,
                batch_size=8,
                samples_per_s=n * 8 / step_s,
                tflops_per_device=10 / step_s,
            )
            for n, step_s in steps_s.items()
        ]
        monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
        changed = msgspec.structs.replace(
            with_study(project, tables=[entry]), config=config, devices=project.devices | devices
        )
        return re.sub(r"</?a\b[^>]*>", "", table(changed, inputs, "scaling"))

    return page


def test_cells_on_several_numbers_of_devices_show_what_each_device_loses(scaling_page):
    page = scaling_page({8: 2.0, 64: 2.5})
    rows = {n: page.split(f'<th scope="row">{n}<')[1].split("</tr>")[0] for n in (8, 64)}
    assert "<td>32.00</td><td>5.00</td>" in rows[8]
    assert "<td>204.8</td><td>4.00</td>" in rows[64]


def test_a_single_number_of_devices_has_no_rows(scaling_page):
    assert '<th scope="row">8<' not in scaling_page({8: 2.0})
