"""The commands, and what goes wrong in one line."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from jat_graph import __version__
from jat_graph.looking.cli.demo import demo_command
from jat_graph.looking.cli.looking import calibrate_command, inspect_command, view_command
from jat_graph.looking.cli.plotting import plot_command
from jat_graph.looking.cli.probing import probe_app

INTERRUPTED = 130  # what a shell is told by a command that Ctrl-C ended
WRONG_INPUT = (ValueError, ImportError, FileNotFoundError, IsADirectoryError, NotADirectoryError)

app = typer.Typer(
    name="jat-graph",
    help="Pretrained transformers on long texts, and the graphs of their attention.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Run the command line; what the user did wrong is one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        given: list[Any] = getattr(error.__cause__, "errors", list)()  # a value of the wrong type
        got = f", got {given[0]['input']!r}" if given else ""
        _fail(" ".join(error.format_message().split()).rstrip(".") + got, error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        said = str(error) if error.strerror is None else where + error.strerror
        _fail(said, 2 if isinstance(error, WRONG_INPUT) else 1)
    except WRONG_INPUT as error:
        _fail(str(error), 2)
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        _fail(f"out of memory; use a smaller batch size or shorter texts ({error})", 1)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    sys.exit(code)


def _fail(message: str, code: int) -> NoReturn:
    line = (message.strip().splitlines() or ["no reason given"])[0]
    typer.echo(f"jat-graph: error: {line}", err=True)
    sys.exit(code)


@app.callback()
def _set_up(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Show the library's own messages, and only our progress bars."""
    if version:
        typer.echo(f"jat-graph {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    messages = logging.getLogger("jat_graph")
    messages.setLevel(logging.INFO)
    if not messages.handlers:
        messages.addHandler(_Lines())


class _Lines(logging.Handler):
    """Each message on a line of its own, above a bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


app.command("demo")(demo_command)
app.command("inspect")(inspect_command)
app.command("calibrate")(calibrate_command)
app.command("plot")(plot_command)
app.command("view")(view_command)
app.add_typer(probe_app, name="probe")
