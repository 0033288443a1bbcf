#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
srun --kill-on-bad-exit=1 fcojax run lasso --workdir=/shared/runs/lasso
code=$?
# 143: the time limit, saved; 75: another process has gone. The run goes on.
case $code in 143 | 75) scontrol requeue "$SLURM_JOB_ID" ;; esac
exit $code
