"""The Snakefile is parsed in every job: planning must import nothing heavy."""

import subprocess
import sys

HEAVY = {
    "torch", "numpy", "pandas", "pyarrow", "matplotlib", "transformers", "datasets", "jsonschema",
    "PIL", "tensorboard", "snakemake", "difflib", "jinja2",
}  # fmt: skip


def test_planning_imports_nothing_heavy(root):
    code = (
        "import sys; from pathlib import Path; from feedrate.config.reading import read_yaml; "
        "from feedrate.config.plan import load_project, make_plan; "
        f"root = Path({str(root)!r}); "
        "make_plan(load_project(root, read_yaml(root / 'config/config.yaml'))); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()
