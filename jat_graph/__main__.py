"""``python -m jat_graph`` runs the command line."""

from jat_graph.looking.cli import main

main()
