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


COMMANDS = (
    "demo",
    "train",
    "eval",
    "experiment",
    "inspect",
    "calibrate",
    "plot",
    "view",
    "probe",
)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("", 2),
        ("--help", 0),
        ("--version", 0),
        ("nonsense", 2),
        ("train --nonsense", 2),
        ("plot --model MODEL --text words --length 500 -o picture.png", 2),
        ("experiment nosuch", 2),
        ("experiment glue", 2),
        ("experiment partners --part 3/2", 2),
        ("experiment partners --jobs 0", 2),
        ("experiment glue --model /no/such", 2),
        ("demo --steps 0", 2),
        ("train --model m --task nosuch", 2),
        ("train --model m --task rte --mixed-precision fp8", 2),
        ("train --model m --task rte --graph nosuch", 2),
        ("train --model m --task rte --density 3", 2),
        ("train --model m --task rte --triplet nosuch", 2),
        ("train --model m --task rte --data-dir nosuch", 1),
        ("train --model ./nosuch --task rte", 2),
        ("train --model MODEL --task rte --layers 2", 2),
        ("train --model MODEL --task rte --heads 0,4", 2),
        ("train --model MODEL --task rte --output USED", 2),
        ("eval --model m --task nosuch", 2),
        ("eval --model m --task rte --batch-size 0", 2),
        ("calibrate --model m --task nosuch", 2),
        ("calibrate --model m --sentence text --density 2", 2),
        ("inspect --model a/b/c --sentence text", 2),
        ("inspect --model MODEL --sentence text --layer 2", 2),
        ("inspect --model MODEL --sentence text --head 4", 2),
        ("plot --model MODEL --sentence text -o picture.png --layers 2", 2),
        ("plot --model m --sentence text -o picture.gif", 2),
        ("probe heads --model m --treebank t --maps nosuch", 2),
        ("probe graphs --model m --treebank t --density 3", 2),
        ("train --model m --task rte --trainer nosuch=1", 2),
        ("train --model m --task rte --trainer learning_rate=1", 2),
        ("train --model m --task rte --pattern nosuch", 2),
        ("train --model MODEL --task rte --compare --arm a=nosuch.json", 1),
        ("inspect --model MODEL --sentence text --pattern window:0", 2),
        ("calibrate --model MODEL --sentence text --pattern window:8|causal", 2),
        ("plot --model MODEL --sentence text -o picture.png --pattern window", 2),
        ("plot -o picture.png --pattern causal,window:x", 2),
        ("plot -o picture.png --pattern area:x", 2),
        ("plot -o picture.png --pattern causal --length 0", 2),
        ("view --model MODEL --sentence text --pattern window:8:8", 2),
        ("view --model MODEL --sentence text --graph nosuch", 2),
        ("view --model MODEL --sentence text --layer 2", 2),
        ("probe heads --model m --treebank t --pattern nosuch", 2),
        ("probe heads --model m --treebank nosuch", 2),
        ("view --model MODEL --treebank nosuch.conllu", 1),
        ("view --model MODEL --treebank nosuch.conllu --sentence-number 8:5", 2),
        ("probe tree --model m --treebank t --pattern nosuch", 2),
        ("probe senses --model m --semcor s --evaluation e --pattern nosuch", 2),
        ("experiment far-recall --model m", 2),
        *((f"{command} --help", 0) for command in COMMANDS),
    ],
)
def test_help_and_typos_load_nothing_that_works(tmp_path: Path, line: str, code: int) -> None:
    model, used = tmp_path / "model", tmp_path / "used"
    for folder, name, content in (
        (model, "config.json", {"num_hidden_layers": 2, "num_attention_heads": 4}),
        (used, "results.json", {}),
    ):
        folder.mkdir()
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    line = line.replace("MODEL", str(model)).replace("USED", str(used))
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *line.split()],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert code == 0 or len(done.stderr.splitlines()) == 1 or not line
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "typer" in loaded
    assert not loaded & HEAVY


STARTING = """
import signal, sys
from jat_graph import cli

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it

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
