"""Adapters: cpu as it is, cuda and hpu as far as a machine without them can tell."""

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest
import torch

from feedrate.config.settings import ModelSettings, Settings, TrainSettings
from feedrate.devices import host
from feedrate.devices.base import DeviceError, Memory, UnsupportedError, adapter
from feedrate.devices.kinds import _habana, cpu, cuda, hpu


def settings(**train) -> Settings:
    """Settings of a run; `train` are fields of that part."""
    model = ModelSettings(name="bridgetower", size="tiny")
    return Settings(model=model, train=TrainSettings(**train))


FP32 = settings(precision="fp32")


def test_cpu_memory_is_this_process_and_the_peak_can_be_reset():
    device = adapter("cpu")
    before = device.memory()
    ballast = torch.ones(40 * 2**20)  # 160 MiB
    grown = device.memory()
    assert grown.now_gib - before.now_gib > 0.12
    assert grown.peak_gib >= grown.now_gib - 1e-3
    del ballast
    device.reset_peak()
    assert device.memory().peak_gib < grown.peak_gib - 0.1


def test_ranks_on_cpus_share_cpus_under_a_build_for_gpus_too(monkeypatch):
    monkeypatch.setattr(torch._C, "_get_accelerator", lambda check=False: torch.device("cuda"))
    adapter("cpu")
    assert torch._C._get_accelerator().type == "cpu", "FSDP builds its mesh for this device type"
    assert torch._C._get_accelerator(True).type == "cpu"


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A folder in place of /proc."""
    monkeypatch.setattr(host, "PROC", tmp_path)
    (tmp_path / "self").mkdir()
    return tmp_path


def test_cpu_names_the_processor(proc):
    file = proc / "cpuinfo"
    file.write_text("processor : 0\nmodel name\t: Made Up 9000 @ 3 GHz\nflags : x\n")
    assert adapter("cpu").device_model() == "Made Up 9000 @ 3 GHz"
    file.write_text("processor : 0\nBogoMIPS : 50\n")
    assert adapter("cpu").device_model()


def test_memory_is_unknown_where_the_kernel_hides_it(proc):
    assert adapter("cpu").memory() == Memory(None, None)
    status = "Name:\tx\nVmHWM:\t 2097152 kB\nVmRSS:\t 1048576 kB\n"
    (proc / "self/status").write_text(status)
    assert adapter("cpu").memory() == Memory(1.0, 2.0)


def test_cpu_arguments_keep_to_the_cpu(tmp_path):
    common = {"output_dir": str(tmp_path), "dataloader_pin_memory": True, "report_to": []}
    arguments = adapter("cpu").training_arguments(common, FP32, 1)
    assert arguments.use_cpu
    assert not arguments.bf16
    assert not arguments.dataloader_pin_memory
    assert adapter("cpu").training_arguments(common, settings(precision="bf16"), 1).bf16


CUDA_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
CUDA_12_6 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((7, 0), CUDA_13, False),  # V100
        ((7, 0), CUDA_12_6, True),
        ((7, 5), CUDA_13, True),
        ((8, 9), CUDA_13, True),  # with the code for 8.6
        ((9, 0), ["sm_90a"], True),
        ((9, 0), ["sm_80", "sm_86"], False),
        ((9, 0), ["sm_80", "compute_80"], True),
        ((8, 0), ["sm_86"], False),
        ((10, 0), CUDA_12_6, False),
        ((12, 0), ["sm_100f"], False),
        ((12, 1), CUDA_13, True),
    ],
)
def test_a_gpu_for_which_torch_has_no_code_is_refused(capability, built_for, runs):
    if runs:
        cuda.check_architecture(capability, built_for)
    else:
        version = ".".join(map(str, capability))
        with pytest.raises(DeviceError, match=f"no code .* {version} .*{built_for[0]}"):
            cuda.check_architecture(capability, built_for)


def test_rocm_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4.0", raising=False)
    with pytest.raises(DeviceError, match="ROCm") as refusal:
        adapter("cuda")
    assert len(str(refusal.value).splitlines()) == 1


def test_cuda_is_never_replaced_by_another_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="no CUDA device"):
        adapter("cuda")


@pytest.mark.parametrize(
    ("kind", "train", "sent"),
    [
        (cpu, {}, (torch.float32, 25)),
        (cuda, {"ddp_bucket_mb": 100}, (torch.float32, 100)),
        (hpu, {}, (torch.float32, 230)),
        (hpu, {"strategy": "fast_ddp"}, (torch.bfloat16, None)),
    ],
)
def test_what_ranks_send_each_other(kind, train, sent):
    bare = object.__new__(kind.DeviceAdapter)
    assert bare.exchange_format(settings(**train), torch.float32) == sent


@pytest.fixture
def fp32_as_it_was():
    backends = torch.backends
    parts = (backends, backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [part.fp32_precision for part in parts]
    yield
    for part, value in zip(parts, before, strict=True):
        part.fp32_precision = value


def test_fp32_is_single_precision_whatever_the_libraries_chose(fp32_as_it_was):
    # As the Trainer and accelerate do for all that they compile; convolutions have it from PyTorch.
    torch.backends.fp32_precision = "tf32"
    torch.backends.cuda.matmul.allow_tf32 = True
    bare = object.__new__(cuda.DeviceAdapter)
    assert bare.fp32() == "tf32"
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert bare.fp32() == "ieee+tf32", "convolutions still have it"
    bare.hold_fp32("tf32")
    assert bare.fp32() == "tf32"
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "high"
    bare.hold_fp32("bf16")
    assert bare.fp32() == "ieee"
    # Older code asks in other words, which fail where the two do not agree.
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"


def test_cuda_wants_a_device_a_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(DeviceError, match="needs 8 CUDA devices on this host, found 4"):
        adapter("cuda", 0, 8)


def test_cuda_refuses_to_run_one_process_over_several_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _index: None)
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES"):
        adapter("cuda").training_arguments({}, FP32, 0)


def test_version_of_the_nvidia_driver(proc):
    bare = object.__new__(cuda.DeviceAdapter)
    assert bare.driver() == "(CUDA None)"
    file = proc / "driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC\n")
    assert bare.driver() == "550.54.15 (CUDA None)"
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
    )
    assert bare.driver() == "570.86.15 (CUDA None)"


def test_hpu_without_its_software_is_told():
    with pytest.raises(DeviceError, match="habana-torch-plugin"):
        adapter("hpu")


@pytest.fixture
def gaudi(monkeypatch):
    """The parts of the Gaudi software that the adapter calls; what they were given is kept."""
    calls = []
    device = ModuleType("habana_frameworks.torch.hpu")
    device.is_available = lambda: True
    device.device_count = lambda: 8
    device.memory_stats = lambda: {"Limit": 96 * 2**30, "InUse": 2**30, "MaxInUse": 3 * 2**30}
    device.synchronize = lambda: calls.append("synchronize")
    core = ModuleType("habana_frameworks.torch.core")
    core.mark_step = lambda: calls.append("mark_step")
    optimum = ModuleType("optimum.habana")
    optimum.GaudiTrainingArguments = lambda **kwargs: SimpleNamespace(
        **kwargs, device=torch.device("hpu")
    )
    modeling = ModuleType("optimum.habana.transformers.modeling_utils")
    modeling.adapt_transformers_to_gaudi = lambda: calls.append("adapt")
    for module in (device, core, optimum, modeling):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(_habana, "importable", lambda _module: True)
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    return calls


@pytest.mark.parametrize(("model", "has_fp8"), [("GAUDI", False), ("GAUDI2", True)])
def test_the_first_generation_has_no_fp8(gaudi, model, has_fp8):
    sys.modules["habana_frameworks.torch.hpu"].get_device_name = lambda: model
    adapter("hpu").check(FP32)
    refused = nullcontext() if has_fp8 else pytest.raises(UnsupportedError, match="fp8: GAUDI, the")
    with refused:
        adapter("hpu").check(settings(precision="fp8"))


def test_hpu_arguments_that_would_train_elsewhere_are_refused(gaudi, tmp_path):
    sys.modules["optimum.habana"].GaudiTrainingArguments = lambda **_kwargs: SimpleNamespace(
        device=torch.device("cpu")
    )
    with pytest.raises(DeviceError, match="would train on cpu"):
        adapter("hpu").training_arguments({"output_dir": str(tmp_path)}, FP32, 3)


def test_the_peak_of_hpu_memory_is_never_below_what_is_in_use(gaudi, monkeypatch):
    """A reset sets the peak to 0, until something is allocated."""
    stats = {"Limit": 96 * 2**30, "InUse": 2**30, "MaxInUse": 0}
    monkeypatch.setattr(sys.modules["habana_frameworks.torch.hpu"], "memory_stats", lambda: stats)
    assert adapter("hpu").memory() == Memory(1.0, 1.0)


def test_hpu_leaves_losses_on_the_device_until_they_are_asked_for(gaudi):
    """Anything but reading the number later would wait for the thread that launches graphs."""
    device = adapter("hpu", 0, 8)
    losses = [device.defer(SimpleNamespace(item=lambda n=step: float(n))) for step in range(12)]
    assert not any(loss.ready() for loss in losses)
    assert [loss.value() for loss in losses] == list(range(12))


def test_energy_is_that_of_the_card_which_the_process_began_with(gaudi, monkeypatch):
    """The Trainer of transformers names card 0, when the process has already taken any free one."""
    asked = []
    monkeypatch.setattr(_habana, "gaudi_counter", asked.append)
    for module in ("3", None):
        if module is None:
            monkeypatch.delenv(hpu.MODULE)
        else:
            monkeypatch.setenv(hpu.MODULE, module)
        device = adapter("hpu")
        monkeypatch.setenv(hpu.MODULE, "0")
        device.energy_counter()
    assert asked == ["3", None]


def test_hpu_wants_a_device_a_rank(gaudi):
    with pytest.raises(DeviceError, match="needs 16 HPUs on this host, found 8"):
        adapter("hpu", 0, 16)


@pytest.mark.parametrize("precision", ["bf16", "fp8", "bf16_full", "tf32"])
def test_a_gpu_without_bf16_and_tf32_is_refused(precision):
    """T4 and V100: `is_bf16_supported` says yes unless `including_emulation` is False."""
    bare = object.__new__(cuda.DeviceAdapter)
    bare.device = torch.device("cuda", 0)
    bare._cuda = SimpleNamespace(
        is_bf16_supported=lambda including_emulation=True: including_emulation,
        get_device_name=lambda _device: "Tesla T4",
    )
    asked = settings(precision=precision)
    with pytest.raises(UnsupportedError, match=rf"train\.precision: {precision}: Tesla T4"):
        bare.check(asked)
    bare.check(settings(precision="fp16"))
    bare._cuda.is_bf16_supported = lambda including_emulation=True: True
    bare.check(asked)


class Graphs:
    """Counts passes as Intel's ModuleCacher, whose `forward` replaces the model's."""

    def __init__(self, **counted):
        vars(self).update(counted)

    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("graphs", "counted"),
    [
        (Graphs(cached_hits_dict={1: 5, 2: 2}, uncached_train_hits=3), (7, 3)),
        (Graphs(cached_hits_dict={}, uncached_train_hits=0), (0, 0)),
        (Graphs(), ()),
        (None, (0, 0)),
    ],
    ids=["some", "none", "uncounted", "no graphs"],
)
def test_gaudi_tells_how_many_passes_its_graphs_replayed(graphs, counted):
    model = torch.nn.Linear(1, 1)
    if graphs:
        model.forward = graphs.forward
    found = hpu.DeviceAdapter.replays(None, SimpleNamespace(model=model))
    assert found == dict(zip(("replayed_passes", "missed_passes"), counted, strict=False))
