"""The machine is described by what matters for a time, and by nothing private."""

import getpass
import json
import platform
import socket
from pathlib import Path

import torch

from jat_graph.lab.machine import describe_machine, source_digest


def test_the_machine_says_what_a_time_depends_on() -> None:
    machine = describe_machine(torch.device("cpu"))
    assert machine["processor"]
    assert machine["threads"] == torch.get_num_threads()
    assert 1 <= machine["cores"]
    assert machine["torch"] == str(torch.__version__)
    assert machine["python"] == platform.python_version()
    assert "gpu" not in machine


def test_no_name_and_no_path_is_given_away() -> None:
    text = json.dumps(describe_machine(torch.device("cpu")))
    for secret in (socket.gethostname(), str(Path.home()), str(Path.cwd())):
        assert secret not in text
    assert f'"{getpass.getuser()}"' not in text


def test_what_malloc_was_told_is_part_of_it(monkeypatch) -> None:
    for name in ("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    assert "malloc" not in describe_machine(torch.device("cpu"))
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    assert describe_machine(torch.device("cpu"))["malloc"] == "MALLOC_MMAP_MAX_=0"


def test_the_digest_follows_the_source(tmp_path: Path, monkeypatch) -> None:
    import jat_graph

    package = tmp_path / "jat_graph"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(jat_graph, "__file__", str(package / "__init__.py"))
    first = source_digest()
    assert first == source_digest()
    (package / "notes.txt").write_text("no code\n")
    assert first == source_digest()
    (package / "__init__.py").write_text("x = 2\n")
    assert first != source_digest()
