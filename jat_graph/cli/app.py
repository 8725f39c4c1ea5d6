"""The commands, and what goes wrong in one line."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, NoReturn

import typer

from jat_graph.cli.experimenting import experiment_command
from jat_graph.cli.inputs import INTERRUPTED
from jat_graph.cli.looking import calibrate_command, demo_command, inspect_command, plot_command
from jat_graph.cli.pages import PageCommand, PageGroup
from jat_graph.cli.probing import probe_app
from jat_graph.cli.training import eval_command, train_command
from jat_graph.cli.viewing import view_command
from jat_graph.progress import has_terminal

app = typer.Typer(
    name="jat-graph",
    cls=PageGroup,
    help="Jump self-attention for pretrained transformers.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Run the command line; what the user did wrong is one line and a non-zero exit."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        _fail(_describe_usage(error), error.exit_code)
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
    if code == INTERRUPTED:  # as typer says it; commands that can say more leave by themselves
        raise KeyboardInterrupt
    sys.exit(code)


def _fail(message: str, code: int) -> NoReturn:
    lines = message.strip().splitlines() or ["no reason given"]
    typer.echo(f"jat-graph: error: {lines[0]}", err=True)
    if "torch" in sys.modules:  # else no process group has threads that could abort the exit
        from jat_graph.training.processes import leave

        leave(code)
    sys.exit(code)


def _describe_usage(error: typer.TyperException) -> str:
    """What typer says in one line, and the value that came where one is of the wrong type."""
    message = " ".join(error.format_message().split()).rstrip(".")
    found, param = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if not found or param is None:
        return message
    wanted = found()[0]["msg"].removeprefix("Input should be ").partition(",")[0]
    return f"{param.opts[0]} must be {wanted}, got {found()[0]['input']!r}"


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
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Show the library's own messages, and only our progress bars."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' bars, too
    messages = logging.getLogger("jat_graph")
    messages.setLevel(logging.INFO)
    if not messages.handlers:
        messages.addHandler(_terminal() if has_terminal() else _Lines())


class _Lines(logging.Handler):
    """Each message on a line of its own, however long: a log has no width."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


def _terminal() -> logging.Handler:
    from rich.console import Console
    from rich.logging import RichHandler

    console = Console(stderr=True)
    return RichHandler(console=console, show_time=False, show_level=False, show_path=False)


app.command("demo", cls=PageCommand)(demo_command)
app.command("train", cls=PageCommand)(train_command)
app.command("eval", cls=PageCommand)(eval_command)
app.command("experiment", cls=PageCommand)(experiment_command)
app.command("inspect", cls=PageCommand)(inspect_command)
app.command("calibrate", cls=PageCommand)(calibrate_command)
app.command("plot", cls=PageCommand)(plot_command)
app.command("view", cls=PageCommand)(view_command)
app.add_typer(probe_app, name="probe")
