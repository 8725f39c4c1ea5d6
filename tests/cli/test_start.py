"""Starting is cheap: what only shows or refuses something loads nothing that would do work."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEAVY = {"datasets", "matplotlib", "numba", "numpy", "torch", "torch_geometric", "transformers"}

LOADED = """
import json, sys
from jat_graph import cli
sys.argv = ["jat-graph", *sys.argv[1:]]
try:
    cli.main()
finally:
    print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


COMMANDS = ("demo", "train", "eval", "experiment", "inspect", "calibrate", "plot", "view", "bench")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("", 2),
        ("--help", 0),
        ("--version", 0),
        ("nonsense", 2),
        ("train --nonsense", 2),
        ("bench nosuch", 2),
        ("bench long --lengths abc", 2),
        ("experiment nosuch", 2),
        *((f"{command} --help", 0) for command in COMMANDS),
    ],
)
def test_help_and_typos_load_nothing_that_works(line: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *line.split()],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "typer" in loaded
    assert not loaded & HEAVY


STARTING = """
import sys
from jat_graph import cli

class Teller:
    def find_spec(self, name, *_):
        if name == sys.argv[-1]:
            print(name, flush=True)

sys.meta_path.insert(0, Teller())
sys.argv = ["jat-graph", "demo", "--output", "unused", "--model", sys.argv[-1]]
cli.main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("package", ["typer", "torch", "transformers"])
def test_an_interrupt_while_work_is_imported_is_one_line(tmp_path: Path, package: str) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", STARTING, package],
        cwd=tmp_path,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline().strip() == package
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert said == "jat-graph: interrupted\n"
