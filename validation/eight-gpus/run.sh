#!/bin/bash
# The validation run of a machine with several GPUs: what it is, what it measures at, and whole passes of a model on it.
#
#   run.sh FOLDER            all steps, one after the other, into FOLDER
#   run.sh FOLDER STEP...    only these
#   run.sh --list            the steps, their limits in seconds, their files
#
# Every step ends: `timeout` kills it at its limit, and a step that was killed or failed keeps what it had written. A step
# that has ended well leaves STEP.done and is passed over the next time, so an interrupted run is taken up by the same command.
# FOLDER/steps.csv says when each step ran, for how long, and with what exit code.
#
# LANECAST        the program (default: lanecast on the path)
# RANKS_PER_GPU   ranks on one GPU (default 1); for a rehearsal on fewer GPUs
# SHORT=1         a rehearsal: few sizes, two strategies, one number of tokens
# NVLink multicast is left off (NCCL_NVLS_ENABLE=0): what is compared are rings, trees and kernels that store to peers.
set -u
export NCCL_NVLS_ENABLE=0
LANECAST=${LANECAST:-lanecast}
SHARE=${RANKS_PER_GPU:-1}
SHORT=${SHORT:-0}
if [ "$SHARE" -gt 1 ]; then export NCCL_MULTI_RANK_GPU_ENABLE=1 CUDA_DEVICE_MAX_CONNECTIONS=32; fi

GPUS=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
RANKS=$((GPUS * SHARE))
# Without GPUs the list is of eight.
if [ "$RANKS" -eq 0 ]; then SHOWN=8; else SHOWN=$RANKS; fi
COUNTS=$(for n in 2 4 8; do [ "$n" -le "$SHOWN" ] && echo "$n"; done | paste -sd, -)
SIZES=256,1K,4K,8K,14336,28672,43008,57344,64K,128K,256K,1M,4M,16M
CHANNELS=1,2,4,8,16
TOKENS="1 3 4"
MINUTES=9
OURS="one-shot-push one-shot-pull two-shot two-shot-push hierarchical fused-one-shot mscclpp-allpair mscclpp-packet"
NCCL="nccl-default nccl-16-channels nccl-few-channels nccl-ring-ll nccl-tree-ll"
HOST="nccl-host-staged host-staged"
if [ "$SHORT" = 1 ]; then
    SIZES=14336,43008; CHANNELS=1,4; TOKENS=3; MINUTES=1; OURS=one-shot-push; NCCL=nccl-ring-ll; HOST=host-staged
    COUNTS=$SHOWN
fi

# name, limit in seconds, command; the name's first word is the file or folder that it writes.
steps() {
    echo "detect|60|$LANECAST detect -o machine.toml --id validated --ranks-per-gpu $SHARE"
    echo "detected.json|60|$LANECAST detect --format json > detected.json"
    echo "calibrate-p2p|600|$LANECAST calibrate --full --minutes $MINUTES --ranks $SHOWN -o calibrate-p2p --id validated"
    echo "calibrate-host|600|NCCL_P2P_DISABLE=1 $LANECAST calibrate --full --only host,nccl --minutes $MINUTES --ranks $COUNTS --sizes $SIZES -o calibrate-host --id validated"
    for threads in default 64 512; do
        set_threads=""; [ "$threads" != default ] && set_threads="NCCL_NTHREADS=$threads "
        echo "grid-nccl-threads-$threads|600|$set_threads$LANECAST calibrate --full --only nccl --minutes $MINUTES --ranks $COUNTS --sizes $SIZES --channels $CHANNELS -o grid-nccl-threads-$threads --id validated"
    done
    echo "grid-ours|600|$LANECAST calibrate --full --only ours --minutes $MINUTES --ranks $COUNTS --sizes $SIZES -o grid-ours --id validated"
    echo "variables|600|$LANECAST calibrate --full --only variables,versus --minutes $MINUTES --ranks $SHOWN -o variables --id validated"
    echo "check|600|$LANECAST calibrate --check --minutes $MINUTES --ranks $COUNTS --sizes 2,42,43008,1M --calls 200 -o check --id validated"
    for tokens in $TOKENS; do
        for launch in graph eager; do
            for strategy in $OURS $NCCL $HOST; do
                name="pass-t$tokens-$launch-$strategy"
                echo "$name|90|$LANECAST run --machine machine.toml --tp $SHOWN --ranks-per-gpu $SHARE --strategy $strategy --tokens $tokens --launch $launch --trace $name.csv --trace-ranks 1"
            done
        done
    done
}

if [ "${1:-}" = --list ] || [ $# -eq 0 ]; then
    sed -n '2,15p' "$0" | sed 's/^# \{0,1\}//'
    steps | awk -F'|' '{ printf "%6d s  %-40s %s\n", $2, $1, $3; total += $2 } END { printf "%6d s at most in all\n", total }'
    exit 0
fi
if [ "$RANKS" -lt 2 ]; then
    echo "run.sh: $GPUS GPU(s) with $SHARE rank(s) each: at least two ranks are needed" >&2
    exit 2
fi
FOLDER=$1; shift
mkdir -p "$FOLDER" && cd "$FOLDER" || exit 2
[ -e steps.csv ] || echo "step,begun,seconds,exit" > steps.csv
failed=0
while IFS='|' read -r name limit command; do
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    if [ -e "$name.done" ]; then echo "$name: done before"; continue; fi
    begun=$(date -u +%Y-%m-%dT%H:%M:%SZ); start=$SECONDS
    timeout -k 10 "$limit" bash -c "$command" > "$name.log" 2>&1 < /dev/null
    code=$?
    echo "$name,$begun,$((SECONDS - start)),$code" >> steps.csv
    if [ "$code" -eq 0 ]; then touch "$name.done"; else failed=$((failed + 1)); fi
    echo "$name: exit $code after $((SECONDS - start)) s"
done < <(steps)
[ "$failed" -eq 0 ]
