"""pandas, imported at its first use; where it is missing, the error names the extra."""

from typing import Any

from jat_graph.core.extras import import_extra


def __getattr__(name: str) -> Any:
    return getattr(import_extra("pandas"), name)
