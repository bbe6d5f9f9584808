"""Measured, modelled and extrapolated rates by the number of devices."""

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
    inputs = Inputs(write_results(tmp_path, project))
    (first, *_) = [cell for cell in inputs.cells(STUDY) if cell.device == "cpu"]

    def page(steps_s, **changes):
        devices = {
            f"x{count}": msgspec.structs.replace(
                project.devices["cpu"], count=count, variant_of="cpu"
            )
            for count in steps_s
        }
        config = msgspec.structs.replace(project.config, devices=[*devices])
        # A batch of 8 takes 2 s alone, and on n devices 0.8 (n - 1) / n s to exchange.
        cells = [
            msgspec.structs.replace(
                first,
                device=f"x{n}",
                world_size=n,
                batch_size=8,
                samples_per_s=n * 8 / step_s,
                model_samples_per_s=n * 8 / 2.0,
                exchange_samples_per_s=8 * n * n / (0.8 * (n - 1)) if n > 1 else None,
                tflops_per_device=10 / step_s,
            )
            for n, step_s in steps_s.items()
        ]
        cells = [msgspec.structs.replace(cell, **changes) for cell in cells]
        monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
        changed = msgspec.structs.replace(
            with_study(project, tables=[entry]), config=config, devices=project.devices | devices
        )
        return re.sub(r"</?a\b[^>]*>", "", table(changed, inputs, "scaling"))

    return page


def test_scaling_keeps_measured_and_extrapolated_numbers_apart(scaling_page):
    page = scaling_page({1: 2.0, 2: 2.5, 8: 2.8})
    measured, extrapolated = page.split("Extrapolated (samples/s)")
    assert "Measured (samples/s)" in measured
    assert "Measured (samples/s)" not in extrapolated
    rows = {n: measured.split(f'<th scope="row">{n}<')[1].split("</tr>")[0] for n in (2, 8)}
    from_8, from_2 = (f"<td>{rate}</td><td>{off}</td>" for rate, off in
                      (("6.667", "+4.2%"), ("23.70", "+3.7%")))  # fmt: skip
    assert f"<td>6.400</td><td>4.00</td>{from_8}" in rows[2], "2.4 s from 8 devices"
    assert f"<td>22.86</td><td>3.57</td>{from_2}" in rows[8], "2.7 s from 2 devices"
    assert '<th scope="row">8<' not in extrapolated
    far = extrapolated.split('<th scope="row">256<')[1].split("</tr>")[0]
    rate = 256 * 8 / (2 + 0.8 * 255 / 256)
    assert f"<em>{rate:.1f}</em>" in far
    error = 2.5 / 2.4 - 1
    assert f"<td>{rate / (1 + error):.1f} to {rate / (1 - error):.1f}</td>" in far


@pytest.mark.parametrize(
    ("steps_s", "why"),
    [
        ({8: 2.5}, "no other number of devices was measured"),
        ({1: 2.0, 8: 4.0, 2: 3.9}, "errs by more than 10%"),
    ],
)
def test_without_a_small_error_on_held_out_counts_nothing_is_extrapolated(
    scaling_page, steps_s, why
):
    page = scaling_page(steps_s)
    assert why in page
    assert '<th scope="row">256<' not in page


def test_sharded_cells_show_what_each_device_loses_and_no_model(scaling_page):
    page = scaling_page({8: 2.0, 64: 2.5}, model_samples_per_s=None, exchange_samples_per_s=None)
    assert "Extrapolated" not in page
    rows = {n: page.split(f'<th scope="row">{n}<')[1].split("</tr>")[0] for n in (8, 64)}
    assert "<td>32.00</td><td>5.00</td>" in rows[8]
    assert "<td>204.8</td><td>4.00</td>" in rows[64]
    assert "nothing is predicted" in page
