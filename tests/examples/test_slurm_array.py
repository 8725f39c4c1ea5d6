"""The SLURM script: bash that runs, options that exist, and an array numbered from 1."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from jat_graph.cli.app import app

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "slurm_array.sh"
TEXT = SCRIPT.read_text(encoding="utf-8")
BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="no bash")


def submit(
    folder: Path, *words: str, number: str | None = "3", first: str = "1"
) -> subprocess.CompletedProcess[str]:
    """Run the script as the scheduler would, with a command in place of ours that says its words.

    Args:
        folder: Where that command is put.
        words: The script's arguments.
        number: Number of the array's task, of 8; None is no array.
        first: Number of the first.
    """
    command = folder / "jat-graph"
    command.write_text('#!/bin/bash\nprintf "%s\\n" "$OMP_NUM_THREADS" "$@"\n')
    command.chmod(0o755)
    array = {
        "SLURM_ARRAY_TASK_ID": number,
        "SLURM_ARRAY_TASK_COUNT": "8",
        "SLURM_ARRAY_TASK_MIN": first,
        "SLURM_CPUS_PER_TASK": "5",
    }
    return subprocess.run(
        [str(BASH), str(SCRIPT), *words],
        env={"PATH": f"{folder}:{os.environ['PATH']}"} | (array if number else {}),
        check=False,
        capture_output=True,
        text=True,
    )


def test_it_is_bash_that_can_be_submitted() -> None:
    subprocess.run([str(BASH), "-n", str(SCRIPT)], check=True)
    assert TEXT.startswith("#!/bin/bash\n") and os.access(SCRIPT, os.X_OK)
    directives = re.findall(r"^#SBATCH --([\w-]+)=", TEXT, flags=re.MULTILINE)
    assert {"array", "cpus-per-task", "gres", "time"} <= set(directives)
    above = TEXT[: TEXT.index("set -euo pipefail")].splitlines()
    assert all(line.startswith("#") or not line for line in above)  # sbatch reads no further
    assert re.search(r"^#SBATCH --array=1-\d+$", TEXT, flags=re.MULTILINE)


def test_each_task_runs_its_part(tmp_path: Path) -> None:
    done = submit(tmp_path, "layers", "a model", "data", "out")
    assert done.stderr == "" and done.returncode == 0
    assert done.stdout.splitlines() == [
        "5", "experiment", "layers", "--model", "a model", "--data-dir", "data", "--output", "out",
        "--part", "3/8",
    ]  # fmt: skip


def test_its_options_are_those_of_the_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {name for parameter in commands["experiment"].params for name in parameter.opts}
    used = set(re.findall(r"^    (--[\w-]+)", TEXT[TEXT.index("exec ") :], flags=re.MULTILINE))
    assert used == {"--model", "--data-dir", "--output", "--part"} <= known


@pytest.mark.parametrize(
    ("words", "number", "first", "message"),
    [
        (("layers",), "3", "1", "usage: sbatch .* EXPERIMENT MODEL DATA_DIR OUTPUT"),
        (("layers", "m", "d", "o"), None, "1", "must be submitted as an array"),
        (("layers", "m", "d", "o"), "0", "0", "numbered from 1 without gaps"),
        (("layers", "m", "d", "o"), "9", "1", "numbered from 1 without gaps"),
    ],
)
def test_what_it_cannot_run_is_one_line(
    tmp_path: Path, words: tuple[str, ...], number: str | None, first: str, message: str
) -> None:
    done = submit(tmp_path, *words, number=number, first=first)
    assert done.returncode == 2 and done.stdout == ""
    assert re.search(message, done.stderr) and done.stderr.count("\n") == 1
