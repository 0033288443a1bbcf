#!/bin/bash
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
srun $(sed -n "${SLURM_ARRAY_TASK_ID}p" runs.sh)
code=$?
# 143: the time limit, saved. The run goes on.
case $code in 143) scontrol requeue "$SLURM_JOB_ID" ;; esac
exit $code
