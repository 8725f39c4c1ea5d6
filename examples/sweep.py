"""Run a sweep: variants × tasks × seeds of a TOML file, over the run scripts or made-up tasks.

``python -m examples.sweep layers --model MODEL --data_dir DIR --output OUT`` runs what is not yet
in ``OUT/results.jsonl``, seed by seed. Several processes, on several machines too, may run one
sweep into one folder: each takes runs that no other is at. What does not fit the results that are
there is refused. A run that fails does not stop the others. ``python -m examples.report`` shows
what came.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import typer
from datasets import disable_progress_bars
from filelock import FileLock, Timeout
from transformers.utils import logging

from examples.sweeps.definition import FOLDER, Run, Sweep, read_sweep
from examples.sweeps.store import Results, Store, read_results
from jat_graph.core.files import replace_unencodable

RESULTS = "results.jsonl"
STUDIES = {name: name for name in ("connections", "reading", "scratch", "trees")}
STUDIES |= {"train": "training", "partners": "small_reader", "far-recall": "small_reader"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a sweep, or say in one line what does not fit or failed."""
    replace_unencodable()
    args = read_arguments(arguments)
    logging.set_verbosity_error()  # of what is said of each run its log has the rest
    logging.disable_progress_bar()
    disable_progress_bars()
    try:
        sweep = read_sweep(args.sweep)
        if args.seeds is not None:
            sweep = Sweep.model_validate(sweep.model_dump() | {"seeds": args.seeds})
        chosen = {"tasks": args.tasks, "variants": args.variants}
        run_sweep(sweep, args.output, model=args.model, data_dir=args.data_dir, **chosen)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the same command continues where it stopped") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise SystemExit(f"sweep: error: {str(error).splitlines()[0]}") from None


def run_sweep(
    sweep: Sweep,
    output: Path,
    *,
    model: str | None = None,
    data_dir: Path | None = None,
    tasks: Sequence[str] = (),
    variants: Sequence[str] = (),
) -> Results:
    """Run what is not finished, of some tasks and variants or of all; return all that is finished.

    Where a run failed, that is raised when all others are through.
    """
    if data_dir is not None and not data_dir.is_dir():
        raise NotADirectoryError(f"data_dir must be a folder, got {data_dir}")
    study = study_of(sweep)
    runs = list(all_runs(sweep, output, model, data_dir))
    for run in {(run.task, run.variant.name): run for run in runs}.values():
        try:
            study.check(run)
        except ValueError as error:
            raise ValueError(f"{run.task}, {run.variant.name}: {error}") from None
    store = Store(output / RESULTS, sweep, model, data_dir)
    finished = store.finished(runs)
    output.mkdir(parents=True, exist_ok=True)
    _check_known("tasks", tasks, sweep.tasks)
    _check_known("variants", variants, [variant.name for variant in sweep.variants])
    chosen = [
        run
        for run in runs
        if (not tasks or run.task in tasks) and (not variants or run.variant.name in variants)
    ]
    left = [run for run in chosen if run.key not in finished]
    typer.echo(f"{len(chosen)} runs, {len(chosen) - len(left)} of them finished")
    failed = []
    for number, run in enumerate(left, start=1):
        start = time.monotonic()
        outcome = finish(run, study, store)
        seconds = time.monotonic() - start
        typer.echo(f"{number} of {len(left)}: {run}: {outcome}, {seconds:.0f} s")
        failed += [f"{run}: {outcome}"] if outcome.startswith("failed") else []
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(left)} runs failed; the first: {failed[0]}")
    return read_results(store.path)


def finish(run: Run, study: ModuleType, store: Store) -> str:
    """Do a run and write its record, unless another process is at it; say what came of it."""
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{run.folder}.lock")
    try:
        with lock.acquire(timeout=0):
            if run.key in store.finished([*all_runs(run.sweep, run.output)]):
                return "finished elsewhere"
            start = time.monotonic()
            content = study.run(run)
            store.add(run, {"seconds": time.monotonic() - start} | content)
            shutil.rmtree(run.folder, ignore_errors=True)
    except Timeout:
        return "another process runs it; on one machine each needs its share of OMP_NUM_THREADS"
    except (ValueError, OSError, RuntimeError, ImportError, ArithmeticError) as error:
        return f"failed, {(str(error) or type(error).__name__).splitlines()[0]}"
    return "finished"


def study_of(sweep: Sweep) -> ModuleType:
    """Return the script that does the runs of a sweep's kind: ``check(run)`` and ``run(run)``."""
    if sweep.kind not in STUDIES:
        raise ValueError(f"kind must be one of {', '.join(STUDIES)}, got {sweep.kind!r}")
    return import_module(f"examples.sweeps.{STUDIES[sweep.kind]}")


def all_runs(
    sweep: Sweep, output: Path, model: str | None = None, data_dir: Path | None = None
) -> Iterator[Run]:
    """Yield the runs of a sweep, seed by seed."""
    for seed in sweep.all_seeds:
        for task in sweep.tasks:
            for variant in sweep.variants:
                yield Run(sweep, task, variant, seed, output, model, data_dir)


def _check_known(what: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:  # quoted, as names may hold commas
            raise ValueError(f"{what} must be among {', '.join(map(repr, known))}, got {name!r}")


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", help=f"one of {names}; or a file FILE.toml")
    parser.add_argument("--output", type=Path, required=True, help="folder for runs and results")
    parser.add_argument("--model", help="folder or Hub name, if one is needed")
    parser.add_argument("--data_dir", type=Path, help="folder of the tasks' files (default: Hub)")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: the sweep's)")
    parser.add_argument("--tasks", nargs="+", default=(), help="only these (default: all)")
    parser.add_argument("--variants", nargs="+", default=(), help="only these (default: all)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
