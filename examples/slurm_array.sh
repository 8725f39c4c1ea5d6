#!/bin/bash
# One experiment as a SLURM array: every task of the array runs its part of the cells.
#
#   sbatch examples/slurm_array.sh layers MODEL DATA_DIR OUTPUT
#
# No part waits for another. What was cut off or failed goes on when the array is submitted again;
# cells that are finished are not repeated. See docs/howto_cluster.md.
#
#SBATCH --job-name=jat-graph
#SBATCH --array=1-8
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:1
#SBATCH --time=04:00:00
#SBATCH --output=%x-%A-%a.log

set -euo pipefail

if [ "$#" -ne 4 ]; then
    echo "usage: sbatch $0 EXPERIMENT MODEL DATA_DIR OUTPUT" >&2
    exit 2
fi
if [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || [ -z "${SLURM_ARRAY_TASK_COUNT:-}" ]; then
    echo "$0 must be submitted as an array: sbatch --array=1-N" >&2
    exit 2
fi
if [ "${SLURM_ARRAY_TASK_MIN:-1}" -ne 1 ] || [ "$SLURM_ARRAY_TASK_ID" -gt "$SLURM_ARRAY_TASK_COUNT" ]; then
    echo "$0 must be an array numbered from 1 without gaps: sbatch --array=1-N" >&2
    exit 2
fi

export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
export TOKENIZERS_PARALLELISM=false

exec jat-graph experiment "$1" \
    --model "$2" \
    --data-dir "$3" \
    --output "$4" \
    --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
