#!/bin/bash
# Tasks x seeds as a PBS job array: element i is task i / SEEDS with seed i % SEEDS, each a run and a job of its own, as that of
# jobs/pbs.sh. An element that has to go on submits itself as a single job: so -J stands on the command line, not here.
# Edit the three places marked <-, then, in the directory that holds .venv, configs and runs: qsub -J 0-29 jobs/pbs-array.sh
# Other resources belong here, or into SELECT: others on the command line of qsub are lost when the script is submitted again.
# Output: run directories $RUNS/<task>-seed<seed>, and esac.o<job>.

# <- 1. ranks of an element; time; LAUNCH and HOURS below (PBS takes no comment behind a directive)
#PBS -l select=1:ncpus=32:mpiprocs=32:ompthreads=1 -l walltime=12:00:00
#PBS -N esac -j oe -r y

# Later rounds are what SCRIPT names (a copy has to name itself there), as it is then, with the run and what was given of the first.
KEEP=ROUND,SCRIPT,INDEX,LIST,TASKS,SEEDS,OPTIONS,RUNS; for n in VENV LAUNCH HOURS STOP PROGRAM ROUNDS PAUSES SELECT; do [ "${!n+x}" ] && KEEP+=,$n; done
: "${VENV:=.venv}"                                                      # <- 2. software; here: module load <your MPI>
: "${TASKS:=halfcheetah walker2d hopper}"                               # <- 3. files of configs/esac,
: "${SEEDS:=10}" "${OPTIONS:=}" "${RUNS:=runs}"                         #       seeds of each, further options,
: "${LIST:=}"                                                            #       or a list of esac-mpi sweep: line i + 1
: "${LAUNCH:=mpiexec -n 32}"                                            # all processes of the select line
: "${HOURS:=11.7}" "${STOP=--max-hours $HOURS}"                         # walltime less a generation and a checkpoint
: "${PROGRAM:=python -m esac_mpi}"
: "${ROUND:=0}" "${ROUNDS:=50}" "${PAUSES:=30 120 300}"                 # rounds that may follow; waits after failed launches [s]
: "${SCRIPT:=jobs/pbs-array.sh}" "${INDEX:=$PBS_ARRAY_INDEX}" "${SELECT:=}" # SELECT: in place of the select line, as -l has it

export ROUND SCRIPT INDEX LIST TASKS SEEDS OPTIONS RUNS; cd "$PBS_O_WORKDIR" && . "${VENV/#\~\//$HOME/}/bin/activate" || exit 1
set -f; tasks=($TASKS) seed=$((INDEX % SEEDS)) task=${tasks[INDEX / SEEDS]}
words=("configs/esac/$task.toml" --seed $seed --run-dir "$RUNS/$task-seed$seed")
[ "$LIST" ] && mapfile -t words < <(sed -n "$((INDEX + 1))p" "${LIST/#\~\//$HOME/}" | xargs -r printf '%s\n')  # as a shell
n=${#words[@]} RUN=${words[@]: -1}; RUN=${RUN/#\~\//$HOME/}
[ "${words[*]: -2:1}" = --run-dir ] || { echo "$LIST has no line $((INDEX + 1)) that ends in --run-dir DIR"; exit 2; }
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONUNBUFFERED=1

# The launcher passes signals on to its ranks. Open MPI's kills them 0.25 s after TERM; there, USR1 twice asks for the same.
pid='' told=''; term() { kill -TERM $pid; }; up() { awk '{ print int($1) }' /proc/uptime; }; began=$(up) # no clock that may be set
[[ $(${LAUNCH%% *} --version 2>&1) = *"Open MPI"* ]] && term() { kill -USR1 $pid; sleep 2; kill -USR1 $pid; }
trap 'kill -USR1 $pid 2>/dev/null' USR1 USR2 XCPU HUP # qsig -s USR1: finish the generation, save, stop
trap 'told=yes; term 2>/dev/null' TERM            # the walltime is here, or qdel; KILL follows in 10 s

# status.json tells how it ended; exit codes do not pass every launcher. A run that died leaves "running" there. A launch that
# failed leaves it unchanged, and is tried again after each of the PAUSES; not so where the program refused (2, 65).
before=$(cat "$RUN/status.json" 2>/dev/null) again=no
for pause in $PAUSES never; do
    $LAUNCH $PROGRAM "${words[@]:0:n-2}" $OPTIONS $STOP --run-dir "$RUN" & pid=$!
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
[ $again = yes ] && [ "$ROUND" -lt "$ROUNDS" ] && ROUND=$((ROUND + 1)) qsub ${SELECT:+-l "$SELECT"} -v "$KEEP" "$SCRIPT" && exit 0
exit $((code ? code : 1))
