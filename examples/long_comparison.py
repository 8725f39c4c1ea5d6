"""Do long documents gain from being read whole, and from jump heads? Three arms, the same budget.

``python -m examples.long_comparison --task brown --data-dir DIR --output DIR --model PATH``
fine-tunes a model on the first 512 tokens of each document; on 2048 tokens, its position table
stretched, with a window and one global token as the pattern; and on the same with jump heads whose
keys are the significant ones, their thresholds calibrated to a density on training texts. Passes
over the data, batches, learning rate and seeds are the same.
An interrupted call goes on where it stopped, and a call with more seeds keeps what is there.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import typer

from jat_graph import JatConfig, PairGraph
from jat_graph.files import write_text
from jat_graph.training import (
    Arm,
    Comparison,
    TrainingOptions,
    calibrate_on_task,
    compare,
    comparison_markdown,
)

PATTERN, JUMP = "pattern", "jump"


def main() -> None:
    """Run the comparison, or say in one line what does not fit."""
    args = read_arguments()
    try:
        run(args)
    except (OSError, ValueError) as error:
        raise SystemExit(f"long_comparison: error: {str(error).splitlines()[0]}") from None


def run(args: argparse.Namespace) -> None:
    """Compare the arms, write ``comparison.md`` and print it."""
    options = TrainingOptions(
        model=args.model,
        task=args.task,
        data_dir=args.data_dir,
        output_dir=str(args.output),
        epochs=args.epochs,
        batch_size=args.batch_size,
        gradient_accumulation=args.gradient_accumulation,
        learning_rate=args.learning_rate,
        max_length=args.short,
        attention_dropout=0.0,  # on the CPU no fused kernel has dropout
        mixed_precision=args.mixed_precision,
        max_train_samples=args.max_train_samples,
        max_eval_samples=args.max_eval_samples,
        select_best=False,
        group_by_length=True,
    )
    comparison = compare(options, arms(args, options), range(args.seeds))
    text = report(comparison)
    write_text(args.output / "comparison.md", text)
    typer.echo(text)


def arms(args: argparse.Namespace, options: TrainingOptions) -> dict[str, Arm]:
    """Return the arms: short, long with the pattern, and long with jump heads too."""
    ordinary = JatConfig(pattern=args.pattern, hop_weights=(1.0,))
    jumping = JatConfig(
        PairGraph(key_selection="significance", num_keys=args.num_keys), pattern=args.pattern
    )
    longer = {"max_length": args.long}
    jumping = calibrate_on_task(replace(options, **longer), jumping, args.density)
    return {"base": Arm(), PATTERN: Arm(ordinary, longer), JUMP: Arm(jumping, longer)}


def report(comparison: Comparison) -> str:
    """Write the table against the short arm, and what the jump heads add to the pattern."""
    splits = comparison.runs["base"][0].metrics
    added = [f"- {comparison.verdict(JUMP, split, base=PATTERN)}" for split in splits]
    seconds = [
        f"- {name}: {sum(run.seconds for run in runs) / len(runs):.0f} s of training a seed"
        for name, runs in comparison.runs.items()
    ]
    lines = [f"### {comparison.task}", "", comparison_markdown(comparison), *added, *seconds]
    return "\n".join(lines) + "\n"


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder or Hub name of a pretrained model")
    parser.add_argument("--task", default="brown", help="a task of long texts (default: brown)")
    parser.add_argument("--data-dir", required=True, help="folder with the original files")
    parser.add_argument("--output", type=Path, required=True, help="folder for runs and the table")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--short", type=int, default=512, help="tokens (default: 512)")
    parser.add_argument("--long", type=int, default=2048, help="tokens (default: 2048)")
    parser.add_argument("--pattern", default="window:128+global:1", help="(default: %(default)s)")
    parser.add_argument("--num-keys", type=int, help="voting keys (default: 5 ln n)")
    parser.add_argument("--density", type=float, default=0.05, help="of the graphs (default: 0.05)")
    parser.add_argument("--epochs", type=int, default=3, help="(default: 3)")
    parser.add_argument("--batch-size", type=int, default=2, help="(default: 2)")
    parser.add_argument("--gradient-accumulation", type=int, default=4, help="(default: 4)")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="(default: 2e-4)")
    parser.add_argument("--max-train-samples", type=int, help="(default: all)")
    parser.add_argument("--max-eval-samples", type=int, help="(default: all)")
    parser.add_argument("--mixed-precision", default="bf16", help="no or bf16 (default: bf16)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
