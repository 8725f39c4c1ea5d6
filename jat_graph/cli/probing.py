"""The command ``probe``: what a model knows of syntax, trees and senses."""

from __future__ import annotations

import typer

from jat_graph.cli.comparing import compare_command
from jat_graph.cli.meaning_probes import atlas_command, ratio_command, senses_command
from jat_graph.cli.pages import PageCommand, PageGroup
from jat_graph.cli.syntax_probes import attention_command, graphs_command, heads_command
from jat_graph.cli.tree_probes import distance_command, tree_command

probe_app = typer.Typer(
    cls=PageGroup,
    help="Ask what a model knows of syntax, trees and senses, with jump heads or without.",
)

probe_app.command("attention", cls=PageCommand)(attention_command)
probe_app.command("heads", cls=PageCommand)(heads_command)
probe_app.command("graphs", cls=PageCommand)(graphs_command)
probe_app.command("tree", cls=PageCommand)(tree_command)
probe_app.command("distance", cls=PageCommand)(distance_command)
probe_app.command("senses", cls=PageCommand)(senses_command)
probe_app.command("ratio", cls=PageCommand)(ratio_command)
probe_app.command("atlas", cls=PageCommand)(atlas_command)
probe_app.command("compare", cls=PageCommand)(compare_command)
