"""The project's own configuration: complete, documented, and true to its sources."""

import pytest
import yaml

from feedrate.config.devices import is_called
from feedrate.config.values import parse_level, read_yaml
from feedrate.config.workflow import Folder, Generated, Hub, WorkflowConfig
from feedrate.results.expression import cell_levels, parse

STUDY = "bridgetower-dataloading"


def headline(project, device, **levels):
    """The published number of a cell, factors not named at their baseline."""
    wanted = project.studies[STUDY].baseline | levels
    found = [
        row.value
        for row in project.published[STUDY]
        if (row.device, row.levels, row.metric) == (device, wanted, "samples_per_s")
        and row.headline
    ]
    assert len(found) == 1, (device, levels, found)
    return found[0]


@pytest.mark.parametrize(
    ("device", "w0", "w1", "w2"),
    [
        ("gaudi2", 601.5, 747.4, 768.7),
        ("h100", 336.5, 580.1, 602.1),
        ("a100-80gb", 227.5, 339.7, 345.4),
    ],
)
def test_the_table_of_the_post(project, device, w0, w1, w2):
    assert [headline(project, device, workers=w) for w in (0, 1, 2)] == [w0, w1, w2]


def test_every_row_says_where_it_is_from_and_how_it_was_measured(project):
    for row in project.published[STUDY]:
        assert row.source
        assert row.software
        assert row.protocol
        assert row.unit
        unknown = row.metric == "parameters" or row.id.startswith("draft")
        assert row.batch_size or unknown, "the draft does not give it"
        assert row.count == (1 if "one-card" in row.id else 8)
        rate = row.metric == "samples_per_s"
        assert row.headline == (row.edition == "2023-08" and rate)


def test_every_ratio_of_the_post_is_a_claim(project):
    stated = [claim.published for claim in project.studies[STUDY].claims if claim.published]
    post = [1.28, 1.29, 1.79, 2.23, 2.20, 2.64, 1.28, 1.79, 1.52, 1.10, 1.41, 1.41, 2.45]
    june = [1.10, 2.38, 1.33]
    assert stated == post + june


def test_each_claim_compares_cells_that_are_run(project):
    study = project.studies[STUDY]
    able = project.devices["gaudi2"].able
    for claim in study.claims:
        for ref in parse(claim.expression):
            texts = cell_levels(ref, study.factors, study.baseline)
            levels = {name: parse_level(text) for name, text in texts.items()}
            assert not any(out.covers(levels, able) for out in study.exclude), claim.id


@pytest.mark.parametrize(
    ("reported", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),  # PCIe and NVL: other peaks and power
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H100 64GB HBM2", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", None),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
        ("A100-PCIE-40GB", "a100-40gb-pcie"),  # drivers before 470 leave the maker out
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla V100-SXM2-16GB", None),
        ("Tesla V100-PCIE-32GB", None),
        ("GAUDI2", "gaudi2"),
        ("HL-225", "gaudi2"),
        ("HL-225H", "gaudi2"),
        ("HL-205", "gaudi"),
        ("GAUDI", "gaudi"),
        ("Gaudi of an unknown generation", None),
        ("Intel Gaudi 3", "gaudi3"),
        ("HL-325L", "gaudi3"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", None),
        ("NVIDIA L4", "l4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", None),
        ("Tesla T4", "t4"),
        ("NVIDIA T4", "t4"),
        ("NVIDIA T400", None),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA GeForce RTX 5090 D", None),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX 5000 Ada Generation", None),
        ("Intel(R) Xeon(R) Platinum 8480+", "sapphire-rapids"),
        ("Intel(R) Xeon(R) Platinum 8480C", None),
    ],
)
def test_reported_models_match_one_device(project, reported, device):
    matching = [
        name
        for name, entry in project.devices.items()
        if not entry.variant_of and entry.model_pattern and is_called(reported, entry.model_pattern)
    ]
    assert matching == ([device] if device else [])


def test_what_a_card_can_do_follows_from_its_compute_capability(project):
    """bf16, TF32 and flash attention begin with 8.0, fp8 with 8.9; each precision has its own
    peak."""
    generation = {
        7.0: ["v100"],
        7.5: ["t4"],
        8.0: ["a100-80gb", "a100-40gb", "a100-80gb-pcie", "a100-40gb-pcie"]
        + [f"a100-40gb-x{count}" for count in (16, 32, 64)],
        8.6: ["a10", "rtx-3090"],
        8.9: ["l40s", "l4", "rtx-4090", "rtx-6000-ada"],
        9.0: ["h100", "h200", "h100-pcie", "h100-nvl", "h200-nvl"],
        10.0: ["b200"],
        12.0: ["rtx-5090"],
    }
    of = {name: version for version, names in generation.items() for name in names}
    assert set(of) == {name for name, d in project.devices.items() if d.kind == "cuda"}
    for name, version in of.items():
        able = project.devices[name].capabilities
        newer = {"bf16", "half", "flash", "tf32"}
        assert newer & set(able) == (newer if version >= 8.0 else set()), name
        assert ("fp8" in able) == (version >= 8.9), name
        peaks = {peak.precision for peak in project.devices[name].peaks}
        assert peaks == {p for p in ("fp32", "tf32", "fp16", "bf16", "fp8") if p in able}, name


def test_every_key_of_config_yaml_stands_there_with_a_comment(root):
    text = (root / "config/config.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    for name in WorkflowConfig.__struct_fields__:
        number = next(n for n, line in enumerate(lines) if line.startswith(f"{name}:"))
        assert lines[number - 1].startswith("# "), name
    datasets = read_yaml(root / "config/config.yaml")["datasets"]
    for kind in (Generated, Folder, Hub):
        entry = datasets[kind.__struct_config__.tag]
        assert set(entry) == {"source", *kind.__struct_fields__}


def test_snakemake_reads_config_yaml_as_we_do(root):
    """Snakemake reads it as YAML 1.1, so no value may mean something else there."""
    path = root / "config/config.yaml"
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == read_yaml(path)
