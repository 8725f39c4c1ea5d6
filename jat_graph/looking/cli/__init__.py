"""The command line: ``jat-graph demo | inspect | calibrate | plot | view | probe``.

Nothing is imported here before Ctrl-C is listened to.
"""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends in one line from the first moment on."""
    try:
        from jat_graph.core.files import replace_unencodable
        from jat_graph.looking.cli.app import run

        replace_unencodable()
        run()
    except KeyboardInterrupt:
        sys.stderr.write("jat-graph: interrupted\n")
        sys.exit(130)
