"""Fine-tune one model on four GLUE tasks, with and without jump heads, and write the table down.

``python -m examples.glue_comparison --model PATH --data-dir DIR --output DIR`` trains four arms on
the same seeds: the base model; the paper's settings; the released code's settings, in those of its
layers that the model has; and the paper's hops with thresholds calibrated to a density of 5 %.
Nothing is tuned: every arm has the same options, fixed beforehand. An interrupted call goes on
where it stopped, and a call with more seeds keeps what is there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from transformers import AutoConfig

from jat_graph import JatConfig
from jat_graph.files import write_text
from jat_graph.training import TrainingOptions, calibrate_on_task, compare, comparison_markdown

TASKS = ("rte", "mrpc", "stsb", "cola")
DENSITY = 0.05


def main() -> None:
    """Run the comparison, or say in one line what does not fit."""
    args = read_arguments()
    try:
        run(args)
    except (OSError, ValueError) as error:
        raise SystemExit(f"glue_comparison: error: {str(error).splitlines()[0]}") from None


def run(args: argparse.Namespace) -> None:
    """Compare the arms on every task and write ``comparison.md``."""
    sections = []
    for task in args.tasks:
        options = TrainingOptions(
            model=args.model,
            task=task,
            data_dir=args.data_dir,
            output_dir=str(args.output / task),
            epochs=args.epochs,
            learning_rate=args.learning_rate,
            mixed_precision=args.mixed_precision,
            max_train_samples=args.max_train_samples,
            select_best=False,
            group_by_length=True,
        )
        args.output.mkdir(parents=True, exist_ok=True)
        comparison = compare(options, arms(options), range(args.seeds))
        sections.append(f"### {task}\n\n{comparison_markdown(comparison)}\n")
        write_text(args.output / "comparison.md", "\n".join(sections))


def arms(options: TrainingOptions) -> dict[str, JatConfig | None]:
    """Return the settings that are compared; the calibration looks at training texts only."""
    depth = AutoConfig.from_pretrained(options.model).num_hidden_layers
    released = JatConfig.released()
    layers = tuple(layer for layer in released.layers or () if layer < depth)
    return {
        "base": None,
        "paper": JatConfig.paper(),
        "released": JatConfig.released(layers=layers),
        "calibrated": calibrated_config(options),
    }


def calibrated_config(options: TrainingOptions) -> JatConfig:
    """Return the paper's settings with thresholds for this task, measured once and kept."""
    file = Path(options.output_dir).with_suffix(".json")
    if not file.exists():
        calibrate_on_task(options, JatConfig.paper(), DENSITY).save(file)
    return JatConfig.load(file)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder or Hub name of a pretrained model")
    parser.add_argument("--data-dir", help="folder with GLUE's original files (default: the Hub)")
    parser.add_argument("--output", type=Path, required=True, help="folder for runs and the table")
    parser.add_argument("--tasks", nargs="+", default=TASKS, help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--epochs", type=int, default=2, help="(default: 2)")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="(default: 1e-4)")
    parser.add_argument("--max-train-samples", type=int, help="(default: all)")
    parser.add_argument("--mixed-precision", default="no", help="no, bf16 or fp16 (default: no)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
