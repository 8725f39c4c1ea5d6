"""The command line: ``jat-graph demo | train | eval | experiment | inspect | calibrate | …``."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, NoReturn

import typer

from jat_graph.cli.benchmarking import bench_command
from jat_graph.cli.experimenting import experiment_command
from jat_graph.cli.looking import calibrate_command, demo_command, inspect_command, plot_command
from jat_graph.cli.training import eval_command, train_command

app = typer.Typer(
    name="jat-graph",
    help="Jump self-attention for pretrained transformers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; what the user did wrong is one line and a non-zero exit."""
    try:
        app()
    except (ValueError, ImportError) as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(_describe(error), 1)
    except Exception as error:
        if type(error).__module__.startswith("jat_graph."):  # a class of ours is a message
            _fail(str(error), 1)
        if not isinstance(error, RuntimeError) or "out of memory" not in str(error):
            raise
        _fail(f"out of memory; use a smaller batch size or shorter texts ({error})", 1)


def _fail(message: str, code: int) -> NoReturn:
    lines = message.strip().splitlines() or ["no reason given"]
    typer.echo(f"jat-graph: error: {lines[0]}", err=True)
    if "torch" in sys.modules:  # else no process group has threads that could abort the exit
        from jat_graph.training.processes import leave

        leave(code)
    sys.exit(code)


def _describe(error: OSError) -> str:
    """The file and the system's reason, without error numbers."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _print_version(wanted: bool) -> None:
    if wanted:
        from jat_graph import __version__

        typer.echo(f"jat-graph {__version__}")
        raise typer.Exit


@app.callback()
def _set_up(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Show the library's own messages, and only our progress bars."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' bars, too
    messages = logging.getLogger("jat_graph")
    messages.setLevel(logging.INFO)
    if not messages.handlers:
        from rich.console import Console
        from rich.logging import RichHandler

        console = Console(stderr=True)
        messages.addHandler(
            RichHandler(console=console, show_time=False, show_level=False, show_path=False)
        )


app.command("demo")(demo_command)
app.command("train")(train_command)
app.command("eval")(eval_command)
app.command("experiment")(experiment_command)
app.command("inspect")(inspect_command)
app.command("calibrate")(calibrate_command)
app.command("plot")(plot_command)
app.command("bench")(bench_command)
