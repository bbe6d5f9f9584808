"""Files as other people's runs leave them, of each kind that can be imported."""

import json

SUMMARY = {
    "epoch": 5.0,
    "total_flos": 2.0e18,
    "train_loss": 0.05,
    "train_runtime": 294.8,
    "train_samples_per_second": 847.7,
    "train_steps_per_second": 2.2,
}
GAUDI = SUMMARY | {"max_memory_allocated (GB)": 63.55, "memory_allocated (GB)": 16.5}
TRAINING = "INFO - ***** Running training *****\n  Total optimization steps = 130\n"
FINAL = (
    "{'train_runtime': '100', 'train_samples_per_second': '640.5', "
    "'train_steps_per_second': '1.3', 'train_loss': '1.75', 'epoch': '1'}\n"
)
OUT_OF_MEMORY = (
    "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB\n"
)


def bars(first=1, last=5, total=130):
    """A progress bar's steps, one a second."""
    return "".join(
        f"\r {n}%|#  | {n}/{total} [00:{n:02}<02:00, 1.0it/s]" for n in range(first, last)
    )


def trainer_folder(folder, **changes):
    """The output folder of a GaudiTrainer, with an evaluation and a checkpoint."""
    folder.mkdir(parents=True)
    summary = GAUDI | changes
    evaluation = {"eval_loss": 0.2, "max_memory_allocated (GB)": 70.0, "epoch": 5.0}
    (folder / "all_results.json").write_text(json.dumps(summary | evaluation))
    (folder / "train_results.json").write_text(json.dumps(summary))
    (folder / "eval_results.json").write_text(json.dumps(evaluation))
    history = [{"loss": 1.0, "step": 10}, SUMMARY | {"step": 650}]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (folder / "checkpoint-500").mkdir()
    early = {"log_history": [{"loss": 1.0, "step": 500}]}
    (folder / "checkpoint-500/trainer_state.json").write_text(json.dumps(early))
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\0" * 64)
    return folder


def events_folder(folder, first_step=10):
    """TensorBoard events of a training, as the Trainer's callback writes them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(folder / "runs/Nov23_host"))
    data = SummaryMetadata.PluginData(plugin_name="scalars")
    points = [(step, "train/loss", 1.0) for step in range(first_step, first_step + 30, 10)]
    points += [(first_step + 30, f"train/{key}", value) for key, value in SUMMARY.items()]
    for step, tag, value in points:
        one = Summary.Value(
            tag=tag, tensor=make_tensor_proto(value), metadata=SummaryMetadata(plugin_data=data)
        )
        writer.add_event(Event(step=step, summary=Summary(value=[one])))
    writer.close()
    return folder


def benchmark_report(folder):
    """What optimum-benchmark leaves after a training."""
    folder.mkdir(parents=True)
    train = {
        "memory": {"unit": "MB", "max_allocated": 20000.0},
        "latency": {"unit": "s", "count": 40, "total": 20.0, "values": [0.5] * 40},
        "throughput": {"unit": "samples/s", "value": 512.0},
    }
    report = {"overall": train | {"throughput": {"unit": "samples/s", "value": 400.0}}}
    report |= {"warmup": train, "train": train}
    config = {"name": "x", "environment": {"optimum_benchmark_version": "0.6.0"}}
    (folder / "benchmark_report.json").write_text(json.dumps(report))
    (folder / "benchmark.json").write_text(json.dumps({"config": config, "report": report}))
    return folder


def milabench_file(folder, code=0, units="items/s", stopped=False):
    """The events of one benchmark of milabench."""
    folder.mkdir(parents=True)
    events = [
        ("config", {"name": "resnet50", "argv": {"--batch-size": 256}}),
        ("line", "Loading Killed-in-Action\n"),
        *(("data", {"task": "train", "loss": 7.0 - n}) for n in range(3)),
        *(("data", {"task": "train", "rate": r, "units": units}) for r in (10.0, 300.0, 310.0)),
        ("data", {"task": "main", "gpudata": {"0": {"memory": [2048.0, 81920.0]}}}),
        *([("stop", None)] * stopped),
        ("end", {"return_code": code}),
    ]
    lines = [json.dumps({"event": name, "data": data, "pipe": "data"}) for name, data in events]
    (folder / "resnet50.D0.data").write_text("\n".join(lines) + "\n{trunc")
    return folder


def habana_tests(folder):
    """What optimum-habana's tests expect, as they keep it."""
    folder.mkdir(parents=True)
    bridgetower = "tests/test_examples.py::MultiCardBridgetowerExampleTester::test_run_bridgetower"
    rates = {"gaudi2": 904.93, "gaudi3": 783.5}
    figures = {
        device: {"train_runtime": 224.42, "train_samples_per_second": rate}
        for device, rate in rates.items()
    }
    other = {"gaudi2": {"train_runtime": 20.0, "train_samples_per_second": 60.0}}
    (folder / "test_examples.json").write_text(json.dumps({bridgetower: figures, "test_x": other}))
    card = {"train_batch_size": 48, "train_runtime": 293.4, "train_samples_per_second": 921.069}
    old = {"gaudi2": {"newyorker": {"distribution": {"multi_card": card}}}}
    (folder / "bridgetower_large.json").write_text(json.dumps(old))
    return folder
