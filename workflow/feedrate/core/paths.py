"""The paths of the files that rules and jobs share, relative to the project's root."""

import re
from pathlib import Path

RUNS = "runs"  # expensive, and kept
RESULTS = "results"  # made from runs within seconds
DATASETS = "resources/datasets"
LOGS = "logs"

SELFTEST_TARGET, SELFTEST_RULE, TRAIN_RULE = "selftest", "selftest_", "train_"
"""The first part of the names of rules that use a device; the device's name follows."""

RAW_INDEX = f"{DATASETS}/{{dataset}}/raw-{{identity}}/index.json"  # files, SHA-256, rows
PREPARED = f"{DATASETS}/{{dataset}}/prepared-{{identity}}"
MANIFEST = f"{PREPARED}/manifest.json"
"""Checksums and counts; written last, like the other files here: presence means 'complete'."""
DATA_REPORT = f"{PREPARED}/data_report.json"
STORE = f"{PREPARED}/store-{{store}}/index.json"  # for `loader.decode: cache`
WINOGROUND = "resources/winoground/{winoground}-{identity}/examples.json"
CHECKPOINT = "resources/checkpoints/{checkpoint}/fetched.json"  # of a `checkpoint_key`

RUN = f"{RUNS}/{{study}}/{{device}}/{{cell}}/rep{{repeat}}-{{identity}}"
"""A run's folder; `identity` is that of the run, with `-2` for a second attempt, and so on."""
RUN_FOLDER = re.compile(r"rep(?P<repeat>\d+)-(?P<identity>[0-9a-f]{8})(?:-(?P<attempt>\d+))?")
SPEC_NAME, EVENTS_NAME, OUTCOME_NAME = "spec.json", "events.jsonl", "outcome.json"
LOG_NAME, TRAINER_NAME, TRACE_NAME = "train.log", "trainer", "trace.json.gz"
"""The files of a run by their names, because a job works in another folder than the run's."""
ANY_EVENTS = "events*.jsonl"
OUTCOME = f"{RUN}/{OUTCOME_NAME}"  # written last
RUN_LOG = f"{RUN}.log"  # what its job printed, in all tries

STUDY = f"{RESULTS}/{{study}}"
"""The results of one study; files of the same names in RESULTS hold all studies together."""
RECORDS = f"{STUDY}/{{device}}/records.jsonl"  # one for each planned run
DISTURBED = f"{STUDY}/{{device}}/disturbed.json"  # the run folders to be measured again
STUDY_PLAN = ".snakemake/feedrate/{study}.json"
"""What the report knows of a study besides its runs; the driver writes it if it changed."""
RESULTS_CSV = f"{STUDY}/results.csv"
RESULTS_PARQUET = f"{STUDY}/results.parquet"
CELLS_CSV = f"{STUDY}/cells.csv"
ANSWERS_CSV = f"{STUDY}/answers.csv"
CLAIMS_CSV = f"{STUDY}/claims.csv"
TABLES, FIGURES = f"{STUDY}/tables", f"{STUDY}/figures"
CONFIRMED = f"{RESULTS}/confirmed.txt"
"""Written last, and only if no cell failed: it decides the exit code of the workflow."""
SELFTEST = f"{RESULTS}/selftest/{{device}}/selftest.json"
"""The parts that work on this machine, written last. The page, selftest.txt, and the runs are in
the same folder: Snakemake deletes the output of a job that is stopped, and keeps these."""
CHECKSUMS = "SHA256SUMS"  # of an archive, as `sha256sum` reads it
PAGE = "report.html"  # the page with the answers of all studies; one file to forward


OF_A_STUDY = [RESULTS_CSV, CELLS_CSV, ANSWERS_CSV, CLAIMS_CSV, TABLES, FIGURES]
"""What the first page shows of a study."""
OF_ALL_STUDIES = [
    path.replace(f"{STUDY}/", f"{RESULTS}/")
    for path in (RESULTS_CSV, RESULTS_PARQUET, CELLS_CSV, ANSWERS_CSV, CLAIMS_CSV)
]
"""The files that hold all studies together."""


def fault(path: str) -> str:
    """Why no file can have this path; empty if one can."""
    if "\0" in path:
        return "a path has no null character"
    if len(path.encode()) > 4095 or any(len(name.encode()) > 255 for name in path.split("/")):
        return "a path has at most 4095 bytes, and each name in it 255"
    return ""


def expand(path: str | Path) -> Path:
    """A path with the home folder in place of a leading `~` or `~user`, if there is such a user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def events_name(rank: int) -> str:
    """The file of a rank's events in the folder of a run."""
    return EVENTS_NAME if rank == 0 else f"events.rank{rank}.jsonl"


def rule_of(prefix: str, device: str) -> str:
    """The name of a device's rule; `prefix` is one of `*_RULE`."""
    return prefix + device.replace("-", "_").replace(".", "_")


def checkpoint_key(name: str, revision: str | None) -> str:
    """The name of the folder of a hub checkpoint at a revision."""
    return f"{name}@{revision or 'main'}".replace("/", "--")
