"""What a run is made from: an edit of it makes another run, any other edit does not. More edits
that keep every run are in tests/golden/edits.yaml."""

import json
import os

import pytest
from project_copy import pick

from feedrate.core.files import digest_file, write_json
from feedrate.flow.identity import (
    PACKAGE,
    DigestCache,
    folder_state,
    measured_code,
)

QUALITY, INFERENCE = "bridgetower-quality", "bridgetower-inference"
SEARCH, LOADING = "flava-batch-search", "bridgetower-dataloading"
STUDIES = [QUALITY, INFERENCE, SEARCH, LOADING]
"""The first trains models and scores them, the second infers, the others train."""
ALL, TRAINING = {*STUDIES}, {QUALITY, SEARCH, LOADING}


def identities(copy, **changes):
    """The identities of the runs of each study, by cell and repeat."""
    graph = copy.graph(**{"studies": STUDIES, "devices": ["cpu"]} | changes)
    found = {study: {} for study in STUDIES}
    for spec in graph.plan.runs.values():
        found[spec.study][spec.cell, spec.repeat] = graph.identity(spec)
    return found


@pytest.fixture
def copy(copy):
    """Its CPU has environment variables."""
    variables = "  software: {environment: {A: '1', B: '2'}}\n"
    copy.edit("config/devices.yaml", "  label: CPU\n", f"  label: CPU\n{variables}")
    return copy


def code(*files):
    return {f"workflow/feedrate/{file}": ("", "ADDED = 1\n") for file in files}


STUDY = "config/studies/{}.yaml".format
CONFIG, DEVICES = "config/config.yaml", "config/devices.yaml"
SAME = {
    "planning": code("flow/graph.py", "flow/resources.py", "config/plan.py"),
    "reporting": code("results/assemble.py", "report/page.py"),
    "order of variables": {DEVICES: ("A: '1', B: '2'", "B: '2', A: '1'")},
    "price and label": {DEVICES: ("label: CPU", "label: A CPU\n  price_usd_per_hour: 1.5")},
    "time limit": {STUDY(INFERENCE): ("timeout_min: 60", "timeout_min: 90")},
    "ladder": {STUDY(SEARCH): ("ladder: [size, batch]", "ladder: [batch]")},
    "claim": {STUDY(SEARCH): ("about 3 times", "thrice")},
}
OTHER = {
    "setting of one study": ({STUDY(SEARCH): ("memory_gib: 1.9", "memory_gib: 1.8")}, {SEARCH}),
    "protocol of one study": ({STUDY(INFERENCE): ("steps: 110", "steps: 120")}, {INFERENCE}),
    "training": (code("jobs/train.py"), TRAINING),
    "worker": (code("jobs/worker.py"), ALL),
    "device kind": (code("devices/kinds/cpu.py"), ALL),
    "launcher": (code("devices/launchers/single.py"), ALL),
    "reference decoder": (code("loading/decoders/reference.py"), ALL),
    "decoder": (code("loading/decoders/host.py"), {QUALITY, INFERENCE, SEARCH}),
    "model": (code("models/builders/flava.py"), {SEARCH}),
    "environment": ({"envs/cpu.yaml": ("pyarrow==", "pyarrow==1")}, ALL),
    "environment variable": ({DEVICES: ("A: '1'", "A: '3'")}, ALL),
    "campaign": ({CONFIG: ("campaign: null", "campaign: driver-570")}, ALL),
    "data": ({CONFIG: ("seed: 20", "seed: 21")}, ALL),
    "fetching": (code("data/fetch.py"), ALL),
    "preparing": (code("data/prepare.py"), ALL),
    "copy of Winoground": ({CONFIG: ("examples: 100", "examples: 90")}, {QUALITY}),
    "code of Winoground": (code("data/winoground.py"), {QUALITY}),
}


@pytest.mark.parametrize("edits", SAME.values(), ids=SAME)
def test_an_edit_of_something_else_keeps_every_run(copy, edits):
    before = identities(copy)
    for file, (old, new) in edits.items():
        copy.edit(file, old, new)
    assert identities(copy) == before


@pytest.mark.parametrize(("edits", "studies"), OTHER.values(), ids=OTHER)
def test_an_edit_of_what_a_run_is_made_from_makes_another_run(copy, edits, studies):
    before = identities(copy)
    for file, (old, new) in edits.items():
        copy.edit(file, old, new)
    after = identities(copy)
    changed = {
        study
        for study, runs in before.items()
        if any(runs[run] != identity for run, identity in after[study].items())
    }
    assert changed == studies
    kept = [run for study in studies for run in before[study].items() & after[study].items()]
    assert not kept


def test_integrations_and_another_study_or_device_keep_every_run(copy):
    both = identities(copy)
    assert identities(copy, report_to=["mlflow"], push_to_hub="me/models") == both
    assert identities(copy, studies=[LOADING])[LOADING] == both[LOADING]
    more = copy.graph(studies=[LOADING], devices=["cpu-x2", "cpu"])
    run = pick(more, device="cpu")
    assert more.identity(run) == both[LOADING][run.cell, run.repeat]


def test_files_of_a_folder_source_are_what_its_runs_are_made_from(copy):
    copy.write("data/contest/captions/1.csv", "caption,contest,rank,score\na,1,1,1\n")
    picture = copy.write("data/contest/cartoons/1.jpg", "one")
    seen = [identities(copy, dataset="folder")]
    copy.write("data/contest/.hidden", "x")
    os.utime(picture)
    assert identities(copy, dataset="folder") == seen[0]
    picture.write_text("another")
    seen.append(identities(copy, dataset="folder"))
    picture.rename(picture.with_stem("2"))
    seen.append(identities(copy, dataset="folder"))
    for study in STUDIES:
        of_run = zip(*(runs[study].values() for runs in seen), strict=True)
        assert all(len({*found}) == 3 for found in of_run)


def test_a_picture_that_was_fetched_and_edited_makes_other_runs_until_it_is_put_back(copy):
    graph = copy.graph(studies=[LOADING])
    run = pick(graph)
    index = copy.root / graph.data.raw_index(run.dataset)
    before, prepared = graph.identity(run), graph.data.manifest(run.dataset)
    make_index(index)
    assert copy.graph(studies=[LOADING]).identity(run) == before, "fetched, and not edited"
    picture = index.parent / "images/1.jpg"
    picture.write_bytes(b"another")
    graph = copy.graph(studies=[LOADING])
    assert graph.identity(run) != before
    assert graph.data.manifest(run.dataset) != prepared
    assert copy.root / graph.data.raw_index(run.dataset) == index, "nothing is fetched"
    picture.write_bytes(b"one")
    assert copy.graph(studies=[LOADING]).identity(run) == before


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
def test_other_weights_in_a_users_folder_make_the_runs_others_that_start_from_them(copy, name):
    for file in ("model.safetensors", "config.json", "vocab.txt"):
        copy.write(f"mine/{file}", "{}")
    own = {"checkpoint": "mine", "checkpoint_model": "flava"}
    before = identities(copy, **own)
    for file in ("README.md", "optimizer.pt", "checkpoint-5/model.safetensors"):
        copy.write(f"mine/{file}", "beside")
    assert identities(copy, **own) == before
    copy.write(f"mine/{name}", "other")
    after = identities(copy, **own)
    assert {study for study in STUDIES if after[study] != before[study]} == {SEARCH}


def test_other_weights_make_a_store_of_decoded_pictures_anew(copy):
    """Its tokenizer is the checkpoint's."""
    copy.edit(STUDY(SEARCH), "decode: host", "decode: cache")
    for file in ("model.safetensors", "config.json"):
        copy.write(f"mine/{file}", "{}")

    def store():
        graph = copy.graph(studies=[SEARCH], checkpoint="mine", checkpoint_model="flava")
        return graph.inputs("cpu")["store"]

    before = store()
    assert before == store()
    copy.write("mine/config.json", "other")
    assert store() != before


def test_what_runs_in_a_job_imports_nothing_that_starts_or_watches_it(copy, tmp_path):
    graph, cache = copy.graph(studies=STUDIES), DigestCache(tmp_path / "cache.json")
    for study in STUDIES:
        cache.of_code(measured_code(pick(graph, study=study)))
    cache.save()
    seen = {name.partition("/feedrate/")[2] for name in json.loads(cache._path.read_text())}
    assert {"jobs/train.py", "jobs/infer.py", "models/layers.py", "models/flops.py"} <= seen
    watching = {"jobs/supervisor.py", "jobs/processes.py", "jobs/outcome.py", "models/memory.py"}
    assert all((PACKAGE / name).is_file() for name in watching)
    assert not seen & watching


# Digests


def test_the_cache_reads_a_file_again_only_when_it_has_changed(tmp_path):
    file, kept, calls = tmp_path / "a.txt", tmp_path / "cache.json", []
    file.write_text("one")

    def compute(path):
        calls.append(path)
        return path.read_text()

    cache = DigestCache(kept)
    assert [cache.of_file(file, compute) for _ in range(2)] == ["one", "one"]
    cache.save()
    assert DigestCache(kept).of_file(file, compute) == "one"
    assert len(calls) == 1
    file.write_text("other")
    assert DigestCache(kept).of_file(file, compute) == "other"


# Files


@pytest.fixture
def cache(tmp_path):
    return DigestCache(tmp_path / "cache.json")


def make_index(path):
    """The list of a fetched dataset, with a picture and rows."""
    raw = path.parent
    (raw / "images").mkdir(parents=True)
    (raw / "rows.parquet").write_bytes(b"rows")
    (raw / "images/1.jpg").write_bytes(b"one")
    rows, *files = (
        {"path": name, "sha256": digest_file(raw / name)}
        for name in ("rows.parquet", "images/1.jpg")
    )
    index = {"dataset": "small", "source": "hub", "rows": rows, "files": files, "left_out": []}
    index |= {"images_read": 1, "rows_read": 1}
    write_json(path, index)
    return index


def test_special_files_and_loops_neither_block_nor_fail(tmp_path, cache):
    folder = tmp_path / "mine"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "up").symlink_to("..")
    (folder / "1.jpg").write_bytes(b"one")
    state = folder_state(folder, cache)
    assert state == folder_state(folder, cache)
    (folder / "1.jpg").write_bytes(b"two!")
    assert folder_state(folder, cache) != state
