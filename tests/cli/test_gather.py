"""Options listed once, shared by several commands."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from jat_graph.cli.gather import gather


@dataclass(frozen=True)
class Colours:
    red: Annotated[int, typer.Option(help="How red.")] = 1
    name: Annotated[str | None, typer.Option("--title")] = None


def test_a_command_gets_its_own_options_and_the_shared_ones() -> None:
    seen: list[object] = []
    app = typer.Typer()

    @app.command()
    @gather(colours=Colours)
    def paint(
        wall: Annotated[str, typer.Option()], colours: Colours, coats: int = typer.Option(2)
    ) -> None:
        """Paint a wall."""
        seen.append((wall, colours, coats))

    run = CliRunner().invoke
    assert run(app, ["--wall", "north", "--red", "5", "--coats", "3"]).exit_code == 0
    assert run(app, ["--wall", "east", "--title", "rose"]).exit_code == 0
    assert seen == [("north", Colours(red=5), 3), ("east", Colours(name="rose"), 2)]
    shown = run(app, ["--help"]).output
    assert "How red." in shown
    assert "Paint a wall." in shown
    assert "--colours" not in shown
    assert run(app, ["--red", "5"]).exit_code == 2  # the wall is missing
