"""Measure every claim about speed and memory: ``python -m examples.bench NAME``.

``costs`` measures the prices that ``backend="auto"`` goes by, ``tables FILE …`` prints files of
results as the docs have them, ``roofline`` counts what to expect on GPUs, ``compile`` compiles all
Triton kernels; others are in examples/benchmarks/cases.json. Each of these checks that both sides
agree, times them in turns, prints a table, and writes its file after each point, to go on with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import torch

from examples.benchmarks import compiling, roofline
from examples.benchmarks.kernels import measure_costs
from examples.benchmarks.measure import NotMeasured, Settings, describe_machine, digest_source
from examples.benchmarks.tables import draw, sections
from jat_graph.core.files import read_text, replace_unencodable, write_text
from jat_graph.viz import save_figure

CASES: dict[str, Any] = json.loads(
    Path(__file__).with_name("benchmarks").joinpath("cases.json").read_text(encoding="utf-8")
)
PRICED = (512, 1024, 2048)  # lengths of which each loop's price is the middle one
SHORTEST = 16  # shorter inputs have too few keys and pairs for the shares that are asked of them


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what does not fit, and leave with exit code 2."""
        self.exit(2, f"bench: error: {message}\n")


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line, and refuse what does not fit."""
    parser = Parser(prog="bench", description="Measure a claim about speed or memory.")
    parser.add_argument("name", choices=(*CASES, "compile", "costs", "roofline", "tables"))
    parser.add_argument("files", nargs="*", type=Path, help="results that `tables` prints")
    parser.add_argument("--lengths", nargs="+", type=int, help="tokens; default: the claim's")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU, if there is one")
    parser.add_argument("--repeats", type=int, default=9, help="how often each point is measured")
    parser.add_argument(
        "--out", "--output", type=Path, help="default: bench-NAME.json, or the table of prices"
    )
    parser.add_argument("--plot", type=Path, help="a picture over the lengths: .png, .svg or .pdf")
    args = parser.parse_args(arguments)
    if bool(args.files) != (args.name == "tables"):
        parser.error("files of results go with `tables`, and with nothing else")
    if args.repeats < 1 or min(args.lengths or [SHORTEST]) < SHORTEST:
        parser.error(f"--repeats must be at least 1, and --lengths at least {SHORTEST}")
    if args.plot and args.plot.suffix not in (".png", ".svg", ".pdf"):
        parser.error(f"--plot must end in .png, .svg or .pdf, got {str(args.plot)!r}")
    for target in filter(None, (args.out, args.plot)):
        if target.is_dir() or not target.parent.is_dir():
            parser.error(f"{target} must be a file in an existing folder")
    return args


def main(arguments: list[str] | None = None) -> None:
    """Run a benchmark, compile, count, or print tables; what goes wrong is one line."""
    replace_unencodable()
    args = read_arguments(arguments)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    settings = Settings(device, args.repeats, dtype)
    try:
        if args.name in ("compile", "roofline"):
            lengths = args.lengths or roofline.LENGTHS
            lines = roofline.table(lengths) if args.name == "roofline" else compiling.table()
            for line in lines:
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
            return
        if args.name == "costs":
            prices = measure_costs(settings, args.out, args.lengths or PRICED)
            sys.stdout.writelines(f"{name:10}{price:10.3g} ns\n" for name, price in prices.items())
            return
        found = tables(args.files) if args.name == "tables" else [run(args, settings)]
        if args.plot:
            save_figure(draw(found, CASES), args.plot)
        sys.stdout.write(sections(found, CASES))
    except (AssertionError, ImportError, OSError, ValueError) as error:
        sys.stderr.write(f"bench: error: {' '.join(str(error).split())}\n")
        raise SystemExit(1 if isinstance(error, AssertionError) else 2) from None


def tables(files: list[Path]) -> list[dict[str, Any]]:
    """Read files of results, and put them into the order of the benchmarks."""
    found = [read_results(path) for path in files]
    return sorted(found, key=lambda r: (list(CASES).index(r["benchmark"]), r["settings"]["device"]))


def read_results(path: Path) -> dict[str, Any]:
    """Read a file of results."""
    try:
        results: dict[str, Any] = json.loads(read_text(path))
        if results["version"] == 1 and results["benchmark"] in CASES and results["rows"]:
            return results
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    raise ValueError(f"{path} must hold results of this script, with at least one point")


def run(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Measure what the file of a benchmark does not hold yet."""
    path = args.out or Path(f"bench-{args.name}.json")
    how = settings._asdict() | {"dtype": str(settings.dtype).removeprefix("torch.")}
    results: dict[str, Any] = {"version": 1, "benchmark": args.name, "settings": how}
    if not args.lengths and not any(
        x["lengths"][settings.device] for x in CASES[args.name]["cases"]
    ):
        raise ValueError(f"{args.name} is measured on a GPU, got --device {settings.device}")
    results |= {"machine": describe_machine(settings.device), "source": digest_source()}
    held = read_results(path) if path.exists() else {**results, "rows": []}
    if any(held[name] != value for name, value in results.items()):
        raise ValueError(f"{path} holds other results, or those of another machine or code")
    done = [(row["what"], row["against"], row["length"]) for row in held["rows"]]
    for case in CASES[args.name]["cases"]:
        for length in args.lengths or case["lengths"][settings.device]:
            if length <= case["longest"] and (case["what"], case["against"], length) not in done:
                held["rows"].append(measure_case(case, length, settings))
                write_text(path, json.dumps(held, indent=1, ensure_ascii=False) + "\n")
    if not held["rows"]:
        raise ValueError(f"--lengths are too long for {args.name}, got {args.lengths}")
    return held


def measure_case(case: dict[str, Any], length: int, settings: Settings) -> dict[str, Any]:
    """Measure a point, or say why it has no numbers here."""
    point = {"what": case["what"], "against": case["against"], "length": length}
    sys.stderr.write("{what}, against {against}, L={length}\n".format(**point))
    module, name = case["measure"].split(".")
    measure = getattr(import_module(f"examples.benchmarks.{module}"), name)
    start = time.perf_counter()
    try:
        outcome = measure(length, settings, **case.get("options", {}))
    except NotMeasured as reason:
        outcome = {**dict.fromkeys(("ours", "theirs", "ratio")), "facts": {}}
        outcome["note"] = f"not measured: {reason}"
    return point | {"outcome": outcome, "seconds": round(time.perf_counter() - start, 3)}


if __name__ == "__main__":
    main()
