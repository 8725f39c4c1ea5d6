"""The command ``probe compare``: what probes found in several models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def compare_command(
    arm: Annotated[
        list[str],
        typer.Option(
            help="NAME=FILES: a probe's JSON files, one a training run, such as "
            "'base=base/*/heads.json'; give two or more, the first is compared with."
        ),
    ],
    value: Annotated[
        str | None, typer.Option(help="Column that is compared. Default: the first of fractions.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for table and picture.")] = Path(
        "probe-compare"
    ),
) -> None:
    """Hold what one probe found in several models against each other, with intervals over runs."""
    if len({text.partition("=")[0] for text in arm}) < len(arm):
        raise ValueError(f"--arm must have names that differ, got {', '.join(arm)}")
    arms = dict(_read_arm(text) for text in arm)
    from jat_graph.cli.probe_options import show_findings
    from jat_graph.probes import compare_findings

    found = compare_findings(arms, value)
    files = [path.name for path in found.save(output)]
    show_findings(found)
    Console().print(f"{', '.join(files)} are in {output}.", soft_wrap=True)


def _read_arm(text: str) -> tuple[str, list[Path]]:
    """A name, and the files that a pattern stands for, by name."""
    name, separator, pattern = text.partition("=")
    if not separator or not name or not pattern:
        raise ValueError(f"--arm must be NAME=FILES, got {text!r}")
    path = Path(pattern)
    found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not found:
        raise ValueError(f"--arm {name} must name files that exist, got {pattern}")
    return name, found
