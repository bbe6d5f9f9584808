"""All records of a study into results.csv, results.parquet and cells.csv."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from feedrate.config.errors import ConfigError
from feedrate.config.plan import Unsupported
from feedrate.config.spec import RunSpec
from feedrate.results.assemble import current_record
from feedrate.results.cells import cell_rows
from feedrate.results.columns import CELLS, RUNS, for_studies
from feedrate.results.record import Record
from feedrate.results.schema import VALUES
from feedrate.results.settings import CollectSettings, DeviceFacts
from feedrate.results.tables import Row, frame_of, rows_of, write_parquet, write_result

MEASURED = [VALUES[column.name] for column in RUNS if column.name in VALUES]


def collect_results(
    records_list: Path, settings: CollectSettings, out_csv: Path, out_parquet: Path, cells: Path
) -> None:
    """Collect a study's records into tables of its runs and cells.

    `records_list` has one path per line. A missing or damaged record is made again from its logs.
    """
    runs = run_table(records_list.read_text(encoding="utf-8").splitlines(), settings)
    columns = for_studies(RUNS, settings.studies)
    write_result(out_csv, columns, rows_of(runs))
    write_parquet(out_parquet, columns, runs)
    write_result(cells, for_studies(CELLS, settings.studies), cell_rows(runs, settings))


def run_table(records: Iterable[str], settings: CollectSettings) -> pd.DataFrame:
    """A row for each record and each unsupported cell, with the columns of results.csv, in the
    order of the configuration: by study, device, levels, repeat."""
    rows = [_run_row(path, settings) for path in records]
    rows += [unsupported_row(cell) for cell in settings.unsupported]
    runs = frame_of(rows, for_studies(RUNS, settings.studies))
    tables = []
    for name, study in settings.studies.items():
        orders = {"device": list(settings.memory_gib)}
        orders |= {factor: entry.levels for factor, entry in study.factors.items()}
        places = {
            name: {value: i for i, value in enumerate(order)} for name, order in orders.items()
        }
        tables.append(
            runs[runs["study"] == name].sort_values(
                [*places, "repeat"],
                key=lambda column, places=places: column.map(places.get(column.name, int)),
            )
        )
    return pd.concat(tables, ignore_index=True)


def _run_row(path: str, settings: CollectSettings) -> Row:
    run = Path(path).parent
    facts = settings.devices.get(run.parent.parent.name, DeviceFacts())
    record, _ = current_record(run, facts)
    if record.study not in settings.studies:
        raise ConfigError(f"{path}: study {record.study!r} is not in --settings")
    return run_row(record, path)


def run_row(record: Record, path: str) -> Row:
    """One row of results.csv, by column; unknown fields are left out.

    The numbers of an invalid run stay in its row; its status keeps them out of all else.
    """
    row: Row = {
        **{n: getattr(record, n) for n in ("study", "device", "cell", "repeat", "status", "cause")},
        "model_parameters": record.model_parameters,
        "flops_per_sample": record.flops_per_sample,
        "library": record.trainer.library,
        "failed_checks": ";".join(check.name for check in record.checks if not check.passed),
        "record": path,
    }
    for value in MEASURED:
        if part := getattr(record, value.part):
            found = getattr(part, value.field)
            row[value.column] = ";".join(found) if isinstance(found, list) else found
    if record.spec:
        row |= _settings(record.spec, record.provenance.cores_granted)
    return row | record.levels


def _settings(spec: RunSpec, cores: int | None) -> Row:
    train, loader, model = spec.settings.train, spec.settings.loader, spec.settings.model
    # A device that decodes loads with threads, which wait for files.
    on_device = loader.decode == "device"
    loading = 0 if on_device else loader.workers * (spec.count // spec.nodes)
    return {
        "task": spec.task,
        "batch_size": train.batch_size,
        "gradient_accumulation": train.gradient_accumulation,
        "precision": train.precision,
        "world_size": spec.count,
        "nodes": spec.nodes,
        "loader_workers": loader.workers,
        "decodes_on_device": on_device,
        "oversubscribed": loading > (cores or loading),
        "keeps_last_batch": loader.last_batch == "keep",
        "model": f"{model.name}-{model.size}",
        "dataset": spec.dataset,
    }


def unsupported_row(cell: Unsupported) -> Row:
    """The one row of a cell that was never launched."""
    return {
        "study": cell.study,
        "device": cell.device,
        "cell": cell.cell,
        "repeat": 1,
        "status": "unsupported",
        "cause": f"{cell.device} lacks the capability {cell.lacks}.",
        **cell.levels,
    }
