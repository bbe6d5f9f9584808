"""What is found on a machine, with a fault planted for each check: stand-ins for the tools of
drivers, and packages that stand in for the vendors' in a real interpreter."""

import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from doctor_parts import bad, look, package, program
from job_specs import make_job

from feedrate.config.spec import Software
from feedrate.devices import doctor, host
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, examine
from tiny_spec import tiny_spec

ROOT = Path(__file__).resolve().parents[3]
H100 = "NVIDIA H100 80GB HBM3"
TORCH = """
import types
__version__ = {version!r}
cuda = types.SimpleNamespace(is_available=lambda: {available})
uint8 = "uint8"
def zeros(*size, dtype): return size
"""


VISION = """
from torch.version import cuda
if {cuda} != -1 and int(str({cuda})[:2]) != int(cuda.split(".")[0]):
    raise RuntimeError("compiled with different CUDA major versions")
"""
"""As torchvision 0.28.0 checks itself (extension.py); its `version.cuda` is a number."""

TRITON = """
import types
def build():
    {builds}
    return types.SimpleNamespace(arch=90)
runtime = types.SimpleNamespace(driver=types.SimpleNamespace(
    active=types.SimpleNamespace(get_current_target=build)))
"""

NVML = """
class NVMLError(Exception): pass
NVML_CLOCK_SM = NVML_GPU_UTILIZATION_SAMPLES = 1
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): assert uuid == "GPU-0"
def nvmlDeviceGetCurrentClocksThrottleReasons(_): return {reasons}
def nvmlDeviceGetEnforcedPowerLimit(_): return {limit_w} * 1000
def nvmlDeviceGetPowerManagementDefaultLimit(_): return 700_000
def __getattr__(name):
    def unsupported(*_): raise NVMLError
    return unsupported
"""

pytestmark = pytest.mark.usefixtures("machine")


def gpu_node(
    folder: Path,
    *,
    gpus: int = 1,
    mig: str = "Disabled",
    reasons: int = 0,
    limit_w: int = 700,
    processes: str = "",
    torch: str = "2.13.0+cu130",
    cuda: str | None = "13.0",
    available: bool = True,
    vision_cuda: int = 13000,
    builds: str = "pass",
    transformers: str = "5.23.0",
    without: tuple[str, ...] = (),
) -> None:
    """A server with GPUs, its driver's tool and packages."""
    rows = "\n".join(f"{H100}, GPU-{n}, 00000000:0{n}:00.0, {mig}" for n in range(gpus))
    program(
        folder,
        "nvidia-smi",
        f"""case "$*" in
*query-gpu=name*) echo '{rows}';;
*compute-apps*) echo '{processes}';;
*) exit 2;;
esac""",
    )
    text = TORCH.format(version=torch, available=available)
    package(folder, "torch", torch, __init__=text, version=f"cuda = {cuda!r}\n")
    package(folder, "transformers", transformers)
    io = "def encode_jpeg(picture): return picture\ndef decode_jpeg(data, device): return data\n"
    vision = {"__init__": VISION.format(cuda=vision_cuda), "io": io}
    vision["version"] = f"cuda = {vision_cuda}\n"
    parts = {
        "torchvision": ("0.28.0", vision),
        "torchao": ("0.18.0", {}),
        "triton": ("3.6.0", {"__init__": TRITON.format(builds=builds)}),
        "pynvml": ("13.0", {"__init__": NVML.format(reasons=reasons, limit_w=limit_w)}),
    }
    for name in parts.keys() - set(without):
        package(folder, name, parts[name][0], **parts[name][1])


def gpu_job(**changes):
    """A run on one H100 that decodes on it, compiled and in fp8."""
    train = {"precision": "fp8", "execution": "compiled"}
    base = {"loader": {"decode": "device"}, "train": train}
    spec = tiny_spec(device="h100-x1", kind="cuda", study="mine", **(base | changes))
    software = msgspec.structs.replace(spec.software, python=sys.executable)
    return msgspec.structs.replace(spec, software=software)


def test_a_gpu_server_in_order_is_fine(project, machine):
    gpu_node(machine)
    found = look(project, gpu_job())
    assert bad(found) == {}
    named = {"Python", "GPUs", "CUDA", "torchvision", "torchao", "triton"}
    assert named <= found.keys()


@pytest.mark.parametrize(
    ("fault", "subject", "outlook", "said"),
    [
        ({"cuda": None, "torch": "2.13.0+cpu", "available": False}, "CUDA", FAILS, "for CPUs"),
        ({"available": False}, "CUDA", FAILS, "torch for CUDA 13.0 finds no GPU"),
        ({"vision_cuda": 12060}, "torchvision", FAILS, "different CUDA major versions"),
        ({"without": ("torchvision",)}, "torchvision", FAILS, "remove what needs it"),
        ({"torch": "2.9.1+cu130"}, "releases", FAILS, "torch 2.9.1+cu130"),
        ({"transformers": "4.57.6"}, "releases", FAILS, "run.lock"),
        ({"transformers": "6.0.0"}, "newer releases", UNKNOWN, "transformers 6.0.0"),
        ({"without": ("torchao",)}, "torchao", FAILS, "make setup"),
        ({"without": ("triton",)}, "triton", FAILS, "No module named 'triton'"),
        ({"builds": "raise RuntimeError('Failed to find C compiler')"}, "triton", FAILS, "gcc"),
        ({"without": ("pynvml",)}, "clocks", SLOW, "nvidia-ml-py"),
        ({"gpus": 2}, "clocks", SLOW, "of GPU 1"),
        ({"mig": "Enabled"}, "GPUs", FAILS, "MIG"),
        ({"gpus": 0}, "GPUs", FAILS, "none"),
        ({"limit_w": 500}, "clocks", SLOW, "a power limit of 500 W"),
        ({"reasons": 0x48}, "clocks", SLOW, "for heat"),
        ({"processes": "4711, python3"}, "GPUs in use", SLOW, "process 4711"),
    ],
)
def test_each_fault_of_a_gpu_server_is_found(project, machine, fault, subject, outlook, said):
    gpu_node(machine, **fault)
    one = look(project, gpu_job())[subject]
    assert one.outlook == outlook
    assert said in f"{one.text} {one.remedy}"


def test_a_package_that_no_run_needs_is_not_missed(project, machine):
    gpu_node(machine, without=("torchvision", "torchao", "triton"))
    plain = gpu_job(loader={"decode": "host"}, train={"precision": "bf16"})
    assert bad(look(project, plain)) == {}
    both = look(project, plain, msgspec.structs.replace(gpu_job(), study="other"))
    assert (both["torchao"].outlook, both["torchao"].studies) == (FAILS, ["other"])


def test_another_model_than_the_registered_one_fails(project, machine):
    gpu_node(machine)
    wrong = msgspec.structs.replace(project.devices["h100"], count=1, model_pattern="NVIDIA A100")
    known = msgspec.structs.replace(project, devices={"h100-x1": wrong})
    found = {one.subject: one for one in examine(known, [gpu_job()])}
    assert found["h100-x1: GPUs"].outlook == FAILS


def test_on_another_host_nothing_of_the_device_is_claimed(project):
    found = look(project, gpu_job(), runs_here=False)
    assert bad(found) == {"node": UNKNOWN}
    assert "feedrate doctor --device h100-x1" in found["node"].remedy


# The interpreter of the jobs


def interpreter(folder: Path, script: str) -> str:
    program(folder, "python-of-jobs", script)
    return str(folder / "bin/python-of-jobs")


def with_python(python: str, **changes):
    return tiny_spec(device="cpu", software=Software(python=python), **changes)


def test_an_old_python_is_found_before_the_first_job(project, machine):
    fine = ', [true, ""]' * (len(doctor.CPU) - 1)
    old = interpreter(machine, f"""echo '[[false, "3.10.12"]{fine}]'""")
    found = {one.subject: one for one in examine(project, [with_python(old)])}
    assert found["cpu: Python"].outlook == FAILS
    assert "3.10.12" in found["cpu: Python"].text


def test_missing_packages_are_named_with_their_interpreter(project, machine):
    bare = interpreter(machine, f'exec {sys.executable} -S -I "$@"')
    found = {one.subject: one for one in examine(project, [with_python(bare)])}
    one = found["cpu: packages"]
    assert one.outlook == FAILS
    assert one.text.startswith(f"{bare} lacks ")


@pytest.mark.parametrize("script", ["exec /bin/sleep 30", "echo hello"])
def test_an_interpreter_without_an_answer_is_unknown(project, machine, monkeypatch, script):
    monkeypatch.setattr(doctor, "ANSWER_S", 0.2)
    silent = with_python(interpreter(machine, script))
    found = {one.subject: one for one in examine(project, [silent])}
    assert found["cpu: Python"].outlook == UNKNOWN


def test_an_image_is_not_fetched_to_be_examined(project, machine):
    program(machine, "apptainer", f"touch {machine}/fetched")
    job = tiny_spec(device="cpu", software=Software(container="docker://vendor/image"))
    found = {one.subject: one for one in examine(project, [job])}
    assert found["cpu: Python"].outlook == UNKNOWN
    assert not (machine / "fetched").exists()


# The host


def test_a_full_disk_fails_and_more_is_needed_for_published_data(project, monkeypatch):
    hub = msgspec.structs.replace(project.config, dataset="hub")
    free = {"gib": 5.0}
    usage = lambda _path: SimpleNamespace(free=free["gib"] * host.GIB)  # noqa: E731
    monkeypatch.setattr(doctor.shutil, "disk_usage", usage)
    assert look(project, with_python(sys.executable))["disk"].outlook == FINE
    published = msgspec.structs.replace(project, config=hub)
    assert look(published, with_python(sys.executable))["disk"].outlook == FAILS
    free["gib"] = 0.1
    assert look(project, with_python(sys.executable))["disk"].outlook == FAILS


def test_where_caches_go_and_a_project_that_takes_no_files_are_told(project, machine, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / ".snakemake/feedrate.home"))
    folders = look(project, with_python(sys.executable))["folders"]
    assert folders.outlook == FINE
    assert folders.text.endswith("caches go to .snakemake/feedrate.home")
    (machine / ".snakemake").rmdir()
    (machine / ".snakemake").touch()
    folders = look(project, with_python(sys.executable))["folders"]
    assert (folders.outlook, folders.text) == (FAILS, f"{machine}/.snakemake: file exists")


@pytest.mark.parametrize(
    ("batch", "decode", "outlook"), [(4, "host", FINE), (512, "host", FAILS), (512, "device", FINE)]
)
def test_shared_memory_that_the_batches_of_workers_overflow(
    project, monkeypatch, batch, decode, outlook
):
    free = SimpleNamespace(free=64 * 2**20)  # Docker's default
    usage = lambda path: free if path == doctor.SHARED else SimpleNamespace(free=2**40)  # noqa: E731
    monkeypatch.setattr(doctor.shutil, "disk_usage", usage)
    loader = {"workers": 2, "decode": decode}
    job = with_python(sys.executable, loader=loader, train={"batch_size": batch})
    memory = look(project, job)["shared memory"]
    assert memory.outlook == outlook
    assert memory.text.startswith("64 MiB are free")


def test_too_few_cores_are_slow(project, monkeypatch):
    monkeypatch.setattr(host, "cores_granted", lambda: 1)
    assert look(project, make_job("torchrun", 2))["cores"].outlook == SLOW
