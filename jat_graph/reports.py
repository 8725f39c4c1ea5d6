"""What inspection returns; the code is in :mod:`jat_graph.inspection.reports`."""

from jat_graph.inspection.reports import (
    HeadReport as HeadReport,
)
from jat_graph.inspection.reports import (
    HeadView as HeadView,
)
from jat_graph.inspection.reports import (
    Inspection as Inspection,
)
from jat_graph.inspection.reports import (
    Jump as Jump,
)
from jat_graph.inspection.reports import (
    SteppingStone as SteppingStone,
)
from jat_graph.inspection.reports import (
    Token as Token,
)
