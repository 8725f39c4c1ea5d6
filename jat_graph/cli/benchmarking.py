"""The command ``bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from jat_graph.checks.numbers import check_choice, check_integer
from jat_graph.files import check_picture, check_target
from jat_graph.lab.speed import LONGEST, NAMES, check_lengths
from jat_graph.progress import has_terminal

COSTS = "costs"


def bench_command(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(NAMES)}; or {COSTS}: refit what backend='auto' goes by."
        ),
    ],
    lengths: Annotated[
        str | None, typer.Option(help="Tokens, such as 512,4096. Default: those of the claim.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: cuda where there is a GPU.")
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            help="File for the results. Default: bench-NAME.json; for costs, the package's table.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a picture over the lengths: .png, .svg or .pdf.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often each point is measured.")] = 9,
) -> None:
    """Measure a claim about speed or memory, as a ratio against something real.

    Results are checked before anything is timed. A point that the JSON file holds is not measured
    again, so that a command can be interrupted and given once more.
    """
    for target in (json_file, plot):
        check_target(target)
    check_choice("benchmark", name, (*NAMES, COSTS))
    if name == COSTS and (lengths is not None or plot is not None):
        raise ValueError("bench costs takes neither --lengths nor --plot")
    if device is not None:
        check_choice("--device", device, ("cpu", "cuda"))
    wanted = None if lengths is None else _read_lengths(lengths)
    if wanted is not None:
        check_lengths(name, wanted, LONGEST[name])
    check_integer("--repeats", repeats, least=1)
    if plot is not None:
        check_picture(plot, "--plot")
    import torch

    from jat_graph import benchmarks
    from jat_graph.viz import save_figure

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if name == COSTS:
        _refit_costs(device, json_file)
        return
    path = Path(f"bench-{name}.json") if json_file is None else json_file
    results = benchmarks.run_benchmark(
        name,
        path=path,
        device=device,
        lengths=wanted,
        repeats=repeats,
        progress=has_terminal(),
    )
    Console().print(benchmarks.results_table(results))
    Console().print(f"Results are in {path}.")
    if plot is not None:
        save_figure(benchmarks.draw_results([results]), plot)
        Console().print(f"The picture is in {plot}.")


def _refit_costs(device: str, path: Path | None) -> None:
    from jat_graph.benchmarks import refit_prices
    from jat_graph.lab.speed.series import Settings

    prices = refit_prices(Settings(device, repeats=1).torch_device, path)
    for loop, price in prices.items():
        Console().print(f"{loop:10}{price:10.3g} ns", highlight=False)
    where = "the package's table, which backend='auto' reads" if path is None else path
    Console().print(f"The prices are in {where}.")


def _read_lengths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(
            f"--lengths must be whole numbers, such as 512,4096, got {text!r}"
        ) from None
