"""Starting is cheap: what only shows or refuses something loads nothing that would do work."""

import json
import os
import signal
import subprocess
import sys
import time
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


COMMANDS = ("demo", "train", "eval", "experiment", "inspect", "calibrate", "plot", "bench")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("", 2),
        ("--help", 0),
        ("--version", 0),
        ("nonsense", 2),
        ("train --nonsense", 2),
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


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("seconds", [0.7, 1.5, 3.0])
def test_an_interrupt_while_it_starts_is_no_traceback(tmp_path: Path, seconds: float) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "jat_graph.cli", "demo", "--output", str(tmp_path)],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(seconds)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "Traceback" not in said
