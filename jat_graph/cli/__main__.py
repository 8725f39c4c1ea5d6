"""``python -m jat_graph.cli`` runs the command line."""

from jat_graph.cli import main

main()
