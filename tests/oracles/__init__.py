"""The oracles: one slow function per equation, the library's rule in full, and the released code's.

Everything here is written to be read. It stores [B, H, L, L, U] on purpose, imports only torch and
math, works in float32 and float64, and carries gradients. Shapes are in the docstrings; the letters
are those of docs/symbols.md.
"""

# ruff: noqa: F403
from tests.oracles.adjacency import *
from tests.oracles.jump import *
from tests.oracles.keys import *
from tests.oracles.masks import *
from tests.oracles.paper import *
from tests.oracles.patterns import *
from tests.oracles.released_code import *
from tests.oracles.sequences import *
from tests.oracles.stones import *
from tests.oracles.studies import *
from tests.oracles.trees import *
from tests.oracles.triplets import *
