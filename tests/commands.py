"""What the scripts of `examples/` take on their command lines, without running them."""

import argparse
import importlib
from typing import Any

import pytest


class _ReadHere(BaseException):
    """A script has come to its command line."""


def known_options(module: str) -> set[str]:
    """Return the options of a script; its ``main`` goes no further than its parser."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_known_args", _raise_with_parser)
        with pytest.raises(_ReadHere) as caught:
            importlib.import_module(module).main()
    return set(caught.value.args[0]._option_string_actions)


def _raise_with_parser(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
    raise _ReadHere(parser)
