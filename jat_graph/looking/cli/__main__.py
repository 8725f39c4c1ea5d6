"""``python -m jat_graph.looking.cli`` runs the command line."""

from jat_graph.looking.cli import main

main()
