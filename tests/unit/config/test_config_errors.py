"""Configuration errors are one message that names file, key, value and what is allowed."""

import pytest

STUDY = "studies/bridgetower-dataloading.yaml"
PUBLISHED = "published/bridgetower-dataloading.csv"
CONFIG = "config/config.yaml: "
DEVICES = "config/devices.yaml: "
IN_STUDY = f"config/{STUDY}: "
IN_PUBLISHED = f"config/{PUBLISHED}"

CASES = {
    "unknown key": (
        "config.yaml", ("repeats: null", "repeets: 3"),
        CONFIG + "repeets: unknown key; did you mean repeats? allowed: studies, devices,",
    ),
    "out of range": (
        "config.yaml", ("repeats: null", "repeats: 0"),
        CONFIG + "repeats: 0 is not allowed; the smallest allowed is 1",
    ),
    "more repeats than allowed": (
        "config.yaml", ("repeats: null", "repeats: 1001"),
        CONFIG + "repeats: 1001 is not allowed; the largest allowed is 1000",
    ),
    "an empty checkpoint": (
        "config.yaml", ("checkpoint: null", "checkpoint: ''"),
        CONFIG + "checkpoint: '' is not allowed; it must not be empty",
    ),
    "an empty repository": (
        "config.yaml", ("push_to_hub: null", "push_to_hub: ''"),
        CONFIG + "push_to_hub: '' is not allowed; it must not be empty",
    ),
    "a checkpoint with a longer name than a file can have": (
        "config.yaml", ("checkpoint: null", f"checkpoint: ./{'x' * 300}"),
        CONFIG + "checkpoint: './xxx",
    ),
    "a checkpoint with a null character": (
        "config.yaml", ("checkpoint: null", 'checkpoint: "x\\0"'),
        CONFIG + "checkpoint: 'x\\x00' is not allowed; a path has no null character",
    ),
    "a dataset with a longer path than a file can have": (
        "config.yaml", ("path: data/", f"path: {'x/' * 3000}"),
        CONFIG + "datasets.folder.path: 'x/x/",
    ),
    "a gate with a longer name than a file can have": (
        "config.yaml", ('gate: ""', f"gate: {'x' * 300}"), CONFIG + "auto_repeats.gate: 'xxx",
    ),
    "an image with a longer name than a file can have": (
        "devices.yaml", ("  count: 1\n", f"  count: 1\n  software: {{container: {'x' * 300}}}\n"),
        DEVICES + "cpu.software.container: 'xxx",
    ),
    "wrong type": (
        "config.yaml", ("repeats: null", "repeats: three"),
        CONFIG + "repeats: 'three' is not allowed; expected a whole number, auto or null",
    ),
    "a word for a list": (
        "config.yaml", ("devices: [cpu]", "devices: cpu"),
        CONFIG + "devices: 'cpu' is not allowed; expected a list, as [cpu]",
    ),
    "an empty list": (
        "config.yaml", ("devices: [cpu]", "devices: []"),
        CONFIG + "devices: [] is not allowed; it must not be empty",
    ),
    "missing key": (
        "config.yaml", ("dataset: generated", ""),
        CONFIG + "dataset: missing, but required",
    ),
    "unknown device": (
        "config.yaml", ("devices: [cpu]", "devices: [cpu, guadi2]"),
        CONFIG + "devices[1]: 'guadi2' is not allowed; did you mean gaudi2? "
        "entries of config/devices.yaml: cpu, gaudi2, gaudi3, a100-80gb, h100, h200",
    ),
    "unknown tracker": (
        "config.yaml", ("trackers: []", "trackers: [mlflow, wandbb]"),
        CONFIG + "trackers[1]: 'wandbb' is not allowed; did you mean wandb? "
        "allowed: mlflow, trackio, wandb",
    ),
    "a device twice": (
        "config.yaml", ("devices: [cpu]", "devices: [cpu, cpu]"),
        CONFIG + "devices[1]: 'cpu' occurs twice",
    ),
    "unknown study": (
        "config.yaml", ("[bridgetower-dataloading,", "[bridgetower-dataload,"),
        CONFIG + "studies[0]: 'bridgetower-dataload' is not allowed; "
        "did you mean bridgetower-dataloading? files in config/studies: bridgetower-command, ",
    ),
    "unknown dataset": (
        "config.yaml", ("dataset: generated", "dataset: genrated"),
        CONFIG + "dataset: 'genrated' is not allowed; did you mean generated?",
    ),
    "wrong source of a dataset": (
        "config.yaml", ("source: folder", "source: foldr"),
        CONFIG + "datasets.folder.source: 'foldr' is not allowed; did you mean folder? "
        "allowed: generated, folder, hub",
    ),
    "no source of a dataset": (
        "config.yaml", ("    source: hub\n", ""),
        CONFIG + "datasets.hub.source: missing, but required; allowed: generated, folder, hub",
    ),
    "a key of another source": (
        "config.yaml", ("    name: jmhessel", "    path: x\n    name: jmhessel"),
        CONFIG + "datasets.hub.path: unknown key; allowed: source, name, config, revision,",
    ),
    "a dataset that is a word": (
        "config.yaml", ("  hub:\n    source: hub", "  mine: x\n  hub:\n    source: hub"),
        CONFIG + "datasets.mine: 'x' is not allowed; expected keys with values",
    ),
    "no captions": (
        "config.yaml", ("columns: {caption: caption, ", "columns: {"),
        CONFIG + "datasets.folder.columns.caption: missing, but required",
    ),
    "a column that the suite makes": (
        "config.yaml", ("columns: {caption: caption, ", "columns: {caption: caption, split: x, "),
        CONFIG + "datasets.folder.columns.split: the suite makes this column itself",
    ),
    "no captions from the hub": (
        "config.yaml", ("columns: {caption: image_description}", "columns: {origin: x}"),
        CONFIG + "datasets.hub.columns.caption: missing, but required",
    ),
    "nothing left to train on": (
        "config.yaml", ("validation_share: 0.1", "validation_share: 0.9"),
        CONFIG + "datasets.folder.validation_share: its sum with test_share must be below 1",
    ),
    "a revision of nothing": (
        "config.yaml", ("checkpoint_revision: null", "checkpoint_revision: main"),
        CONFIG + "checkpoint_revision: it is given, but checkpoint is not",
    ),
    "a checkpoint of an unknown model": (
        "config.yaml", ("checkpoint_model: null", "checkpoint_model: vitt"),
        CONFIG + "checkpoint_model: 'vitt' is not",
    ),
    "a key twice": (
        "config.yaml", ("repeats: null", "repeats: 2\nrepeats: 3"),
        "config/config.yaml, line ",
    ),
    "device: unknown key": (
        "devices.yaml", ("memory_gib: 96", "memory: 96"),
        DEVICES + "gaudi2.memory: unknown key; did you mean memory_gib? allowed: label,",
    ),
    "device: unknown kind": (
        "devices.yaml", ("kind: cuda", "kind: gpu"),
        DEVICES + "a100-80gb.kind: 'gpu' is not allowed; allowed: cpu, cuda, hpu",
    ),
    "device: name with a slash": (
        "devices.yaml", ("gaudi2:", "gaudi/2:"),
        DEVICES + "the key 'gaudi/2' is not allowed; it may have letters, digits and _ . + -",
    ),
    "device: negative peak": (
        "devices.yaml", ("datasheet_tflops: 432", "datasheet_tflops: -432"),
        DEVICES + "gaudi2.peaks[0].datasheet_tflops: -432 is not allowed; it must be above 0",
    ),
    "device: not a pattern": (
        "devices.yaml", ('"NVIDIA H100 80GB HBM3"', '"NVIDIA (H100"'),
        DEVICES + "h100.model_pattern: 'NVIDIA (H100' is not a regular expression (missing )",
    ),
    "device: a precision twice": (
        "devices.yaml", ("{precision: fp32, datasheet_tflops: 19.5", "{precision: bf16"),
        DEVICES + "a100-80gb.peaks[2].precision: 'bf16' occurs twice",
    ),
    "device: unknown capability": (
        "devices.yaml", ("[fp32, bf16, ddp, compiled", "[fp32, bf16, ddp, compilled"),
        DEVICES + "cpu.capabilities[3]: 'compilled' is not allowed; did you mean compiled?",
    ),
    "device: a capability twice": (
        "devices.yaml", ("[fp32, bf16, ddp, compiled", "[fp32, bf16, bf16, compiled"),
        DEVICES + "cpu.capabilities[2]: 'bf16' occurs twice",
    ),
    "device: one process for eight": (
        "devices.yaml", ("label: H100\n", "label: H100\n  launcher: single\n"),
        DEVICES + "h100.launcher: 'single' starts at most 1 process, but count is 8",
    ),
    "study: unknown setting": (
        STUDY, ("sets: loader.workers", "sets: loader.worker"),
        IN_STUDY + "factors.workers.sets: 'loader.worker' is not allowed; "
        "did you mean loader.workers? settings: model.name,",
    ),
    "study: setting without its part": (
        STUDY, ("sets: loader.workers", "sets: workers"),
        IN_STUDY + "factors.workers.sets: 'workers' is not allowed; did you mean loader.workers?",
    ),
    "study: a setting for two factors": (
        STUDY, ("fast_ddp: {train.strategy: fast_ddp}", "fast_ddp: {loader.workers: 2}"),
        IN_STUDY + "factors.strategy.bundles: 'loader.workers' occurs twice",
    ),
    "study: level of a wrong type": (
        STUDY, ("[0, 1, 2, 3, 4, 8, 16]", "[0, 1, two, 3, 4, 8, 16]"),
        IN_STUDY + "factors.workers.levels[2]: 'two' is not allowed; expected a whole number",
    ),
    "study: level out of range": (
        STUDY, ("[0, 1, 2, 3, 4, 8, 16]", "[0, 1, -2, 3, 4, 8, 16]"),
        IN_STUDY + "factors.workers.levels[2]: -2 is not allowed; the smallest allowed is 0",
    ),
    "study: 2.0 workers": (
        STUDY, ("[0, 1, 2, 3, 4, 8, 16]", "[0, 1, 2.0, 3, 4, 8, 16]"),
        IN_STUDY + "factors.workers.levels[2]: 2.0 is not allowed; expected a whole number",
    ),
    "study: level null": (
        STUDY, ("[0, 1, 2, 3, 4, 8, 16]", "[0, 1, null]"),
        IN_STUDY + "factors.workers.levels[2]: null is not allowed; "
        "expected true or false, a number or text",
    ),
    "study: level twice": (
        STUDY, ("[0, 1, 2, 3, 4, 8, 16]", "[0, 1, 2, 3, 4, 8, 16, 1]"),
        IN_STUDY + "factors.workers.levels[7]: 1 occurs twice",
    ),
    "study: unknown level": (
        STUDY, ("levels: [reference, device]", "levels: [reference, devise]"),
        IN_STUDY + "factors.decode.levels[1]: 'devise' is not allowed; did you mean device?",
    ),
    "study: level with a slash": (
        STUDY, ("sets: loader.decode\n    label: JPEG decoding\n    levels: [reference, device]",
                "sets: model.checkpoint\n    levels: [host, org/device]"),
        IN_STUDY + "factors.decode.levels[1]: 'org/device' is not allowed; it names folders",
    ),
    "study: text that looks like a number": (
        STUDY, ("sets: loader.decode\n    label: JPEG decoding\n    levels: [reference, device]",
                "sets: model.size\n    levels: [host, '7']"),
        IN_STUDY + "factors.decode.levels[1]: '7' is not allowed; without quotes it is not text",
    ),
    "study: no levels": (
        STUDY, ("[0, 1, 2, 3, 4, 8, 16]", "[]"),
        IN_STUDY + "factors.workers.levels: [] is not allowed; it must not be empty",
    ),
    "study: no factors": (
        STUDY, ("factors:\n", "factors: {}\nunused:\n"),
        IN_STUDY + "factors: {} is not allowed; it must not be empty",
    ),
    "study: names that no folder can bear": (
        STUDY, ("sets: loader.decode\n    label: JPEG decoding\n    levels: [reference, device]",
                f"sets: model.size\n    levels: [host, device, {'x' * 180}]"),
        IN_STUDY + "factors: names and levels make cell names longer than 200",
    ),
    "study: no baseline of a factor": (
        STUDY, ("baseline: {workers: 0, decode: reference", "baseline: {workers: 0"),
        IN_STUDY + "baseline.decode: missing, but required; its levels: reference, device",
    ),
    "study: baseline is no level": (
        STUDY, ("baseline: {workers: 0", "baseline: {workers: 5"),
        IN_STUDY + "baseline.workers: 5 is not allowed; its levels: 0, 1, 2, 3, 4, 8, 16",
    ),
    "study: baseline of a wrong type": (
        STUDY, ("baseline: {workers: 0", "baseline: {workers: false"),
        IN_STUDY + "baseline.workers: false is not allowed; its levels: 0, 1, 2, 3, 4, 8, 16",
    ),
    "study: unknown capability": (
        STUDY, ("{device: decode_device}", "{device: decode_devcie}"),
        IN_STUDY + "factors.decode.requires.device: 'decode_devcie' is not allowed; "
        "did you mean decode_device? allowed: autocast_lists, bf16,",
    ),
    "study: capability for no level": (
        STUDY, ("{device: decode_device}", "{devise: decode_device}"),
        IN_STUDY + "factors.decode.requires: 'devise' is not allowed; did you mean device?",
    ),
    "study: excludes everything": (
        STUDY, ("  - levels: {decode: device}", "  - levels: {}"),
        IN_STUDY + "exclude[0].levels: it must not be empty",
    ),
    "study: excludes no level": (
        STUDY, ("  - levels: {decode: device}", "  - levels: {workers: 5}"),
        IN_STUDY + "exclude[0].levels.workers: 5 is not allowed; its levels: 0, 1, 2, 3, 4, 8, 16",
    ),
    "study: too many repeats": (
        STUDY, ("repeats: 3", "repeats: 1001"),
        IN_STUDY + "protocol.repeats: 1001 is not allowed; the largest allowed is 1000",
    ),
    "study: a seed that the last repeats could not have": (
        STUDY, ("warmup_steps: 10", "warmup_steps: 10, seed: 4294967295"),
        IN_STUDY + "protocol.seed: 4294967295 is not allowed; the largest allowed is 4294966296",
    ),
    "study: warm-up takes all": (
        STUDY, ("warmup_steps: 10", "warmup_steps: 140"),
        IN_STUDY + "protocol.warmup_steps: 140 is not allowed; it must be below steps, 140",
    ),
    "study: adapted warm-up takes all": (
        STUDY, ("steps: 46", "steps: 6"),
        IN_STUDY + "protocol.warmup_steps (on cpu): 6 is not allowed; it must be below steps, 6",
    ),
    "study: adapts no device": (
        STUDY, ("  cpu:\n", "  cpuu:\n"),
        IN_STUDY + "adapt: 'cpuu' is not allowed; did you mean cpu? kinds and devices: cpu, cuda,",
    ),
    "study: adapts an unknown key": (
        STUDY, ("loader: {max_tokens: 32}", "loader: {max_token: 32}"),
        IN_STUDY + "adapt.cpu.settings.loader.max_token: unknown key; did you mean max_tokens?",
    ),
    "study: adapts for a device that is not selected": (
        STUDY, ("adapt:\n", "adapt:\n  h200: {protocol: {step: 3}}\n"),
        IN_STUDY + "adapt.h200.protocol.step: unknown key; did you mean steps?",
    ),
    "study: adapts a wrong value": (
        STUDY, ("precision: fp32", "precision: fp64"),
        IN_STUDY + "adapt.cpu.settings.train.precision: 'fp64' is not allowed; "
        "did you mean fp16? allowed: bf16, bf16_full, fp16, fp16_full, fp32",
    ),
    "study: adapts an unknown part": (
        STUDY, ("    protocol: {steps: 46", "    protocl: {steps: 46"),
        IN_STUDY + "adapt.cpu: 'protocl' is not allowed; did you mean protocol?",
    ),
    "study: adapts nothing": (
        STUDY, ("    protocol: {steps: 46, warmup_steps: 6, ceiling_s: 2}", "    protocol:"),
        IN_STUDY + "adapt.cpu.protocol: null is not allowed; expected keys with values",
    ),
    "study: adapts bundles with a number": (
        STUDY, ("adapt:\n", "adapt:\n  h200: {bundles: 5}\n"),
        IN_STUDY + "adapt.h200.bundles: 5 is not allowed; expected keys with values",
    ),
    "study: adapts a bundle with a word": (
        STUDY, ("adapt:\n", "adapt:\n  h200: {bundles: {strategy: ddp}}\n"),
        IN_STUDY + "adapt.h200.bundles.strategy: 'ddp' is not allowed; expected keys with values",
    ),
    "study: adapts a level with a word": (
        STUDY, ("adapt:\n", "adapt:\n  h200: {bundles: {strategy: {ddp: fsdp}}}\n"),
        IN_STUDY + "adapt.h200.bundles.strategy.ddp: 'fsdp' is not allowed; expected keys",
    ),
    "study: table of an unknown kind": (
        STUDY, ("{name: speedup, kind: speedup", "{name: speedup, kind: speedups"),
        IN_STUDY + "tables[2].kind: 'speedups' is not allowed; did you mean speedup?",
    ),
    "study: table over no factor": (
        STUDY, ("factor: workers}", "factor: worker}"),
        IN_STUDY + "tables[2].factor: 'worker' is not allowed; did you mean workers? factors:",
    ),
    "study: column of no level": (
        STUDY, ("{workers: 2, decode: device}, ", "{workers: 2, decode: gpu}, "),
        IN_STUDY
        + "tables[0].columns[3].decode: 'gpu' is not allowed; its levels: reference, device",
    ),
    "study: figure over no factor": (
        STUDY, ("caption: figure_answer, x: workers", "caption: figure_answer, x: batch"),
        IN_STUDY + "figures[0].x: 'batch' is not allowed; factors: workers, decode, strategy",
    ),
    "study: two figures of one name": (
        STUDY, ("name: fit, kind: fit, title: Mea", "name: answer, kind: fit, title: Mea"),
        IN_STUDY + "figures[5].name: 'answer' occurs twice",
    ),
    "study: two claims of one name": (
        STUDY, ("id: gaudi2-h100-w1", "id: gaudi2-h100-w2"),
        IN_STUDY + "claims[1].id: 'gaudi2-h100-w2' occurs twice",
    ),
    "study: claim of no edition": (
        STUDY, ("edition: 2023-06b", "edition: 2023-06"),
        IN_STUDY + "claims[13].edition: '2023-06' is not allowed; did you mean 2023-06b?",
    ),
    "study: no such published file": (
        STUDY, ("[bridgetower-dataloading.csv,", "[bridgetower-data.csv,"),
        IN_STUDY + "published[0]: 'bridgetower-data.csv' is not allowed; "
        "did you mean bridgetower-dataloading.csv?",
    ),
    "published: unknown column": (
        PUBLISHED, ("batch_size", "batchsize"),
        IN_PUBLISHED + ", line 1: column 'batchsize' is not allowed; did you mean batch_size?",
    ),
    "published: missing column": (
        PUBLISHED, (",unit,", ",software,"),
        IN_PUBLISHED + ", line 1: 'software': the column occurs twice",
    ),
    "published: missing value": (
        PUBLISHED, (",601.5,", ",,"), IN_PUBLISHED + ", line 2: value: missing, but required",
    ),
    "published: value is no number": (
        PUBLISHED, (",601.5,", ",about 600,"),
        IN_PUBLISHED + ", line 2: value: 'about 600' is not allowed; expected a number",
    ),
    "published: decimal comma": (
        PUBLISHED, (",601.5,", ",601,5,"),
        IN_PUBLISHED + ", line 2: 17 fields, but the header has 16 (a text with a comma needs",
    ),
    "published: half a device": (
        PUBLISHED, ("gaudi2,8,", "gaudi2,0.5,"),
        IN_PUBLISHED + ", line 2: count: 0.5 is not allowed; expected a whole number",
    ),
    "published: no switch": (
        PUBLISHED, (",true\n", ",yes\n"),
        IN_PUBLISHED + ", line 2: headline: 'yes' is not allowed; expected true or false",
    ),
    "published: id twice": (
        PUBLISHED, ("2023-08-gaudi2-w1", "2023-08-gaudi2-w0"),
        IN_PUBLISHED + ", line 3: id: '2023-08-gaudi2-w0' occurs in line 2 already",
    ),
    "published: no level": (
        PUBLISHED, ("workers=0;", "workers;"),
        IN_PUBLISHED + ", line 2: levels: 'workers' is not allowed; expected factor=value",
    ),
    "published: factor twice": (
        PUBLISHED, ("workers=0;", "workers=0;workers=1;"),
        IN_PUBLISHED + ", line 2: levels: the factor 'workers' occurs twice",
    ),
    "published: unknown factor": (
        PUBLISHED, ("workers=0;", "worker=0;"),
        IN_PUBLISHED + ": row 2023-08-gaudi2-w0: levels: 'worker' is not allowed; "
        "did you mean workers? the study's factors: workers, decode, strategy",
    ),
    "published: level that its setting cannot have": (
        PUBLISHED, ("decode=reference", "decode=refrence"),
        IN_PUBLISHED + ": row 2023-08-gaudi2-w0: levels.decode: 'refrence' is not allowed; "
        "did you mean reference?",
    ),
    "published: unknown device": (
        PUBLISHED, ("w0,gaudi2", "w0,gaudi4"),
        IN_PUBLISHED + ": row 2023-08-gaudi2-w0: device: 'gaudi4' is not allowed; did you mean",
    ),
    "published: unknown edition": (
        PUBLISHED, ("48,2023-08,", "48,2023-09,"),
        IN_PUBLISHED + ": row 2023-08-gaudi2-w0: edition: '2023-09' is not allowed;",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "change", "message"), CASES.values(), ids=CASES.keys())
def test_a_wrong_value_is_told_with_file_key_and_what_is_allowed(copy, file, change, message):
    error = copy.edit(file, change).error()
    assert error.startswith(message)
    assert len(error.splitlines()) <= 11


def test_all_that_is_wrong_in_a_file_is_listed(copy):
    copy.edit(
        STUDY,
        ("warmup_steps: 10", "warmup_steps: 0"),
        ("max_tokens: 128", "max_token: 128"),
        ("levels: [reference, device]", "levels: []"),
    )
    keys = [line.split(": ")[1] for line in copy.error().splitlines()]
    assert keys == ["factors.decode.levels", "protocol.warmup_steps", "settings.loader.max_token"]


def test_wrong_references_are_listed_together_too(copy):
    copy.edit(
        STUDY, ("baseline: {workers: 0", "baseline: {workers: 5"), ("x: workers", "x: decoding")
    )
    keys = [line.split(": ")[1] for line in copy.error().splitlines()]
    assert keys == ["baseline.workers", "figures[0].x"]


def test_wrong_rows_are_listed_together(copy):
    error = copy.edit(PUBLISHED, (",601.5,", ",x,"), (",747.4,", ",,")).error()
    assert [line.split(": ")[0][-6:] for line in error.splitlines()] == ["line 2", "line 3"]
