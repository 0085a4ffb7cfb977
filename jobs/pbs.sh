#!/bin/bash
# One run as a PBS job. Before its walltime the run saves its state and ends, and the job submits this script again, until the
# run is complete. PBS gives no warning before the walltime: it is --max-hours that stops the run in time.
# Edit the three places marked <-, then, in the directory that holds .venv, configs and runs: qsub jobs/pbs.sh
# Resources belong here: those on the command line of qsub are lost when the script is submitted again.
# Output: the run directory $RUN, and esac.o<job>.

# <- 1. ranks, one per core; time; LAUNCH and HOURS below (PBS takes no comment behind a directive)
#PBS -l select=1:ncpus=8:mpiprocs=8:ompthreads=1
#PBS -l walltime=12:00:00
#PBS -N esac
#PBS -j oe
#PBS -r y

# Later rounds are the script that SCRIPT names (so a copy has to name itself there), as it is then, with the first one's run
# and what was given to it.
KEEP=ROUND,SCRIPT,RUN,OPTIONS; for n in VENV LAUNCH HOURS STOP PROGRAM ROUNDS PAUSES; do [ "${!n+x}" ] && KEEP+=,$n; done
: "${VENV:=.venv}"                                                      # <- 2. software; here: module load <your MPI>
: "${RUN:=runs/halfcheetah-seed0}"                                      # <- 3. the run: its directory,
: "${OPTIONS:=--task.id HalfCheetah-v5 --seed 0}"                      #       its configuration and options; --check asks first
: "${LAUNCH:=mpiexec -n 8}"                                             # all processes of the select line
: "${HOURS:=11.7}" "${STOP=--max-hours $HOURS}"                         # walltime less a generation and a checkpoint
: "${PROGRAM:=python -m esac_mpi}"
: "${ROUND:=0}" "${ROUNDS:=50}" "${PAUSES:=30 120 300}"                 # rounds that may follow; waits after failed launches [s]
: "${SCRIPT:=jobs/pbs.sh}"

export ROUND SCRIPT RUN OPTIONS; cd "$PBS_O_WORKDIR" || exit 1
RUN=${RUN/#\~\//$HOME/}; . "${VENV/#\~\//$HOME/}/bin/activate" || exit 1 # ~ within quotes
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONUNBUFFERED=1; set -f # no word is a pattern of files

# The launcher passes signals on to its ranks. Open MPI's kills them 0.25 s after TERM; there, USR1 twice asks for the same.
pid='' told=''; term() { kill -TERM $pid; }; up() { awk '{ print int($1) }' /proc/uptime; }; began=$(up) # no clock that may be set
[[ $(${LAUNCH%% *} --version 2>&1) = *"Open MPI"* ]] && term() { kill -USR1 $pid; sleep 2; kill -USR1 $pid; }
trap 'kill -USR1 $pid 2>/dev/null' USR1 USR2 XCPU HUP # qsig -s USR1: finish the generation, save, stop
trap 'told=yes; term 2>/dev/null' TERM            # the walltime is here, or qdel; KILL follows in 10 s

# status.json tells how it ended; exit codes do not pass every launcher. A run that died leaves "running" there. A launch that
# failed leaves it unchanged, and is tried again after each of the PAUSES; not so where the program refused (2, 65).
before=$(cat "$RUN/status.json" 2>/dev/null) again=no
for pause in $PAUSES never; do
    $LAUNCH $PROGRAM $OPTIONS $STOP --run-dir "$RUN" & pid=$!
    while kill -0 $pid 2>/dev/null; do wait $pid; done
    wait $pid; code=$?; [[ " $OPTIONS " = *" --check "* ]] && exit $code  # that begins nothing
    after=$(cat "$RUN/status.json" 2>/dev/null)
    status=$(sed -n 's/^ *"status": "\([a-z]*\)".*/\1/p' <<<"$after")
    [ "$after" != "$before" ] || [ "$code$status" = 0complete ] || status=unchanged
    [ "$status" = unchanged ] || [[ $after != *'"job": '* ]] || [[ $after = *"\"job\": \"$PBS_JOBID\""* ]] || break # another job's run
    [ "$status" != unchanged ] && again=yes && break                    # it had begun, and was stopped or died
    [ $code = 2 ] || [ $code = 65 ] || [ "$told" ] && break
    echo "$(date): the launch failed, exit code $code; next one in [s]: $pause"
    sleep ${pause/never/0} & pid=$!; [ "$told" ] || wait $pid
    [ "$told" ] && break
done
echo "$(date): round $ROUND, exit code $code, status ${status:-none}"
case $status in complete) exit 0 ;; failed) exit $((code ? code : 1)) ;; esac
[ "$told" ] && { [ $(($(up) - began)) -lt "$(awk "BEGIN { print int(3600 * $HOURS) }")" ] && again=no || again=yes; } # qdel, or time
[ $again = yes ] && [ "$ROUND" -lt "$ROUNDS" ] && ROUND=$((ROUND + 1)) qsub -v "$KEEP" "$SCRIPT" && exit 0
exit $((code ? code : 1))
