"""``python -m jat_graph`` runs the command line."""

from jat_graph.cli import main

main()
