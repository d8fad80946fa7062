#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
#
# One visit to a machine with one or more GPUs, from a bundle (tools/bundle): every GPU test under its own time limit, the
# sweeps of all protocols with verified data and hashes compared with the CPU executor, the memory checker on a small set;
# peers: every peer beside ours, twice, and every way to issue; pace: calls at full rate and at a server's, held and not.
# Ends within SESSION_SECONDS (520) and closes with a short table; exit 1 if anything in it failed.
# usage: gpu_session.sh BUNDLE [tests|perf|sanitizer|peers|pace|beside|all] [TEST...]      OUT=DIR: where logs and JSON go (./gpu-session)
set -uo pipefail

usage() {
  sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2
  exit 64
}
[ "$#" -ge 1 ] || usage
bundle="$(realpath -m "$1")"
mode="${2:-all}"
shift
[ "$#" -ge 1 ] && shift
only=("$@")
case "$mode" in
  tests | perf | sanitizer | peers | pace | beside | all) ;;
  *) printf "unknown mode '%s'\n" "$mode" >&2; usage ;;
esac
[ -x "$bundle/ringbell" ] || { printf '%s/ringbell is not there: make the bundle with tools/bundle\n' "$bundle" >&2; exit 3; }
gpus="$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ')"
[ "$gpus" -ge 1 ] || { printf 'no GPU: nvidia-smi -L lists none\n' >&2; exit 3; }

out="${OUT:-$PWD/gpu-session}"
mkdir -p "$out" || exit 3
work="$(mktemp -d)"
seconds="${SESSION_SECONDS:-520}"
export RINGBELL_PROGRAM="$bundle/ringbell" RINGBELL_TEST_DIR="$bundle/tests" LD_LIBRARY_PATH="$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# NCCL, cuBLAS and CUPTI may be there as Python packages alone.
packages="$(python3 -c '
import nvidia, pathlib
names = ("libnccl.so.2", "libcublas.so.1?", "libcupti.so.1?")
print("".join(":" + str(f.parent) for p in nvidia.__path__ for n in names for f in sorted(pathlib.Path(p).rglob(n))))
' 2> /dev/null)"
LD_LIBRARY_PATH+="$packages"
# Nothing here uses NVLink multicast; no library that is opened may begin to.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

table=()
failures=0
note() {  # note RESULT NAME SECONDS TEXT
  table+=("$(printf '%-8s %-44s %5s s  %s' "$@")")
  printf '%s\n' "${table[-1]}"
  [ "$1" = FAILED ] && failures=$((failures + 1))
  return 0
}
# What is left of this visit, at most $1: a limit for timeout. 0 when nothing is.
limit() {
  local left=$((seconds - SECONDS))
  [ "$left" -gt 5 ] || { echo 0; return; }
  [ "$left" -lt "$1" ] && echo "$left" || echo "$1"
}

# ---- MPS: ranks that share a GPU then run side by side ---------------------------------------------------------------
mps=off
mps_start() {
  [ "$mps" = off ] || return 0
  mps=missing
  command -v nvidia-cuda-mps-control > /dev/null || return 0
  CUDA_MPS_PIPE_DIRECTORY="$(mktemp -d "$work/pipe-XXXX")"  # new ones: the last server may still be ending
  CUDA_MPS_LOG_DIRECTORY="$(mktemp -d "$work/log-XXXX")"
  export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  if timeout 20 nvidia-cuda-mps-control -d > "$work/mps.out" 2>&1 &&
    timeout 60 "$bundle/ringbell" perf --ranks 2 --device cuda --sizes 8 -n 5 -w 1 -c 1 --allow-shared-device > "$work/mps-probe.out" 2>&1; then
    mps=on
    return 0
  fi
  printf 'MPS does not work here:\n'
  tail -n 5 "$work/mps.out" "$work/mps-probe.out" "$CUDA_MPS_LOG_DIRECTORY"/*.log 2> /dev/null
  mps=on
  mps_stop
  mps=missing
}
mps_stop() {
  [ "$mps" = on ] || return 0
  echo quit | timeout 20 nvidia-cuda-mps-control > /dev/null 2>&1
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  mps=off
}
trap 'mps_stop; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# ---- tests -----------------------------------------------------------------------------------------------------------
# name, seconds, MPS: shared = when ranks share a GPU, always = also with more GPUs (worlds of 3 and 4), never
TESTS="
reduce_cross_test      60 never
gpu_links_test         60 always
gpu_context_test       40 shared
gpu_bad_input_test    100 shared
gpu_residency_test    100 shared
gpu_hazards_test       90 shared
gpu_launch_count_test  70 shared
gpu_stale_read_test   130 shared
gpu_all_reduce_test   150 always
gpu_peer_lost_test    100 never
gpu_pointer_kinds_test 60 shared
gpu_launched_test     240 shared
gpu_after_stream_test 240 shared
gpu_against_test      120 shared
"
run_test() {  # run_test NAME SECONDS MPS
  local name="$1" code=0 start=$SECONDS log="$work/$1.log" allowed
  [ -x "$bundle/tests/$name" ] || { note missing "$name" 0 "not in the bundle: make it with tools/bundle --all"; return; }
  allowed="$(limit "$2")"
  [ "$allowed" -gt 0 ] || { note 'no time' "$name" 0 ""; return; }
  case "$3" in
    always) mps_start ;;
    shared) if [ "$gpus" -eq 1 ]; then mps_start; else mps_stop; fi ;;
    *) mps_stop ;;
  esac
  timeout -k 10 "$allowed" "$bundle/tests/$name" > "$log" 2>&1 < /dev/null || code=$?
  { printf '==== %s (MPS %s): exit code %d\n' "$name" "$mps" "$code"; cat "$log"; } >> "$out/session.log"
  local passed skipped
  passed="$(grep -c '^\[       OK \]' "$log")"
  skipped="$(grep -c '^\[  SKIPPED \] .*(.*ms)' "$log")"
  [ "$code" -eq 0 ] && [ "$passed" -eq 0 ] && [ "$skipped" -gt 0 ] && code=77
  case "$code" in
    0) note passed "$name" $((SECONDS - start)) "$passed cases$([ "$skipped" -gt 0 ] && printf ', %d skipped' "$skipped")" ;;
    77) note skipped "$name" $((SECONDS - start)) "$(grep -m 1 -iE 'skipped: |no libcupti|refuses|not permitted' "$log")" ;;
    *)
      note FAILED "$name" $((SECONDS - start)) "exit code $code$([ "$code" -ge 124 ] && [ "$code" -le 137 ] && printf ' (killed at %d s)' "$allowed")"
      grep -v '^\[ \(RUN\|      OK\)' "$log" | tail -n 40 | sed 's/^/    /'
      ;;
  esac
  # Figures that somebody wants to see even when all is well.
  [ "$code" -eq 0 ] && grep -E '^(call \(ms|cuda[A-Z]|cuModule|first launch|legacy|stream create|event create|graph create|rank [0-9]+: )' "$log" | head -n 40 | sed 's/^/    /'
  return 0
}
run_tests() {
  local name allowed how wanted
  while read -r name allowed how; do
    [ -n "$name" ] || continue
    if [ "${#only[@]}" -gt 0 ]; then
      wanted=no
      for pattern in "${only[@]}"; do
        # shellcheck disable=SC2053
        [[ "$name" == $pattern ]] && wanted=yes
      done
      [ "$wanted" = yes ] || continue
    fi
    run_test "$name" "$allowed" "$how"
  done <<< "$TESTS"
}

# ---- sweeps ----------------------------------------------------------------------------------------------------------
hashes() {  # size:type:op hash, of a table
  awk '/^ *[0-9]/ && $3 != "-" { print $1 ":" $3 ":" $4, $NF }' "$1" | sort
}
sweep() {  # sweep NAME SECONDS ARGUMENTS...: table to $work/NAME.out
  local name="$1" code=0 start=$SECONDS allowed rows wrong
  allowed="$(limit "$2")"
  [ "$allowed" -gt 0 ] || { note 'no time' "$name" 0 ""; return 1; }
  shift 2
  timeout -k 10 "$allowed" "$bundle/ringbell" perf "$@" > "$work/$name.out" 2> "$work/$name.err" < /dev/null || code=$?
  { printf '==== ringbell perf %s\n' "$*"; cat "$work/$name.out" "$work/$name.err"; } >> "$out/session.log"
  rows="$(hashes "$work/$name.out" | wc -l)"
  if [ "$code" -ne 0 ] || [ "$rows" -eq 0 ]; then
    note FAILED "$name" $((SECONDS - start)) "exit code $code, $rows rows"
    { tail -n 15 "$work/$name.err"; tail -n 5 "$work/$name.out"; } | sed 's/^/    /'
    return 1
  fi
  # wrong elements: columns 9 and 13
  wrong="$(awk '/^ *[0-9]/ && $3 != "-" { if ($9 != "-") n += $9; if ($13 != "-") n += $13 } END { print n + 0 }' "$work/$name.out")"
  if [ "$wrong" != 0 ]; then
    note FAILED "$name" $((SECONDS - start)) "$wrong wrong elements"
    return 1
  fi
  note passed "$name" $((SECONDS - start)) "$rows rows, 0 wrong"
}
run_perf() {
  local protocol start different common shared=()
  if [ "$gpus" -eq 1 ]; then
    mps_start
    shared=(--allow-shared-device)
  else
    mps_stop
  fi
  for protocol in LL LL128 Simple; do
    sweep "cuda-$protocol-float32-to-64M" 90 --ranks 2 --device cuda "${shared[@]}" -b 8 -e 64M -f 8 --algo ring \
      --proto "$protocol" -d float32 -c 1 -n 50 -J "$out/$protocol-float32-to-64M.json" &&
      awk '/^ *[0-9]/' "$work/cuda-$protocol-float32-to-64M.out" | cut -c1-160 | sed 's/^/    /'
  done
  for protocol in LL LL128 Simple; do
    sweep "cuda-$protocol-all-types-to-1M" 90 --ranks 2 --device cuda "${shared[@]}" -b 8 -e 1M -f 8 --algo ring \
      --proto "$protocol" -d all -c 1 -n 20 --hash -J "$out/$protocol-all-types-to-1M.json" || continue
    sweep "cpu-$protocol-all-types-to-1M" 60 --ranks 2 --device cpu -b 8 -e 1M -f 8 --algo ring --proto "$protocol" \
      -d all -c 0 -n 1 -w 0 --hash || continue
    start=$SECONDS
    hashes "$work/cuda-$protocol-all-types-to-1M.out" > "$work/cuda.hashes"
    hashes "$work/cpu-$protocol-all-types-to-1M.out" > "$work/cpu.hashes"
    common="$(join "$work/cuda.hashes" "$work/cpu.hashes" | wc -l)"
    different="$(join "$work/cuda.hashes" "$work/cpu.hashes" | awk '$2 != $3 { print $1 }')"
    if [ -n "$different" ] || [ "$common" -eq 0 ]; then
      note FAILED "hashes-$protocol-cuda-and-cpu" $((SECONDS - start)) "$common rows, different: $(printf '%s' "$different" | head -n 5 | tr '\n' ' ')"
    else
      note passed "hashes-$protocol-cuda-and-cpu" $((SECONDS - start)) "$common rows alike"
    fi
  done
}

# ---- peers and ways to issue -----------------------------------------------------------------------------------------
PEERS=nccl,nccl-sym,nccl-ring-ll,nccl-ring-ll128,nccl-ring-simple,nccl-tree-ll,nccl-tree-ll128,nccl-tree-simple,nccl-nop2p,launch
own_gpus() {  # NCCL wants a GPU for each rank
  [ "$gpus" -ge 2 ] && return 0
  note skipped "$1" 0 "two GPUs are needed"
  return 1
}
against() {  # against NAME SECONDS ARGUMENTS...: table shown, JSON to $out/NAME.json
  local name="$1"
  sweep "$name" "$2" --ranks 2 --device cuda "${@:3}" -J "$out/$name.json" &&
    grep -E '^ *[0-9]' "$work/$name.out" | cut -c1-60,133-230 | sed 's/^/    /'
}
run_peers() {
  own_gpus peers || return 0
  mps_stop
  local run start=$SECONDS differs
  for run in 1 2; do
    against "peers-$run" 200 --sizes 8,1K,8K,64K,256K,1M,4M,64M --against "$PEERS" -c 1 -n 100 -w 5 --rounds 7
  done
  local code=0
  differs="$(python3 "$bundle/bench/compare_ratios.py" "$out/peers-1.json" "$out/peers-2.json" 2>&1)" || code=$?
  note "$([ "$code" -eq 0 ] && echo passed || echo FAILED)" "two runs agree within 5 %" $((SECONDS - start)) \
    "$(printf '%s' "$differs" | tail -n 1)"
  against issue-graph 60 --sizes 8,8K --issue graph --proto LL --against nccl,nccl-sym,launch -n 20 -w 3
  against issue-stream 60 --sizes 8,8K --issue stream --proto LL --against nccl,nccl-sym,launch -n 20 -w 3
  against issue-after 60 --sizes 8,8K --issue after --proto LL --against nccl,launch -n 40 -w 3
  against issue-chain 90 --sizes 8,16K,256K --issue chain --against nccl,nccl-sym,launch -n 10 -w 2
  start=$SECONDS
  if [ "$(limit 90)" -gt 0 ] && timeout -k 10 "$(limit 90)" python3 "$bundle/bench/torch_symm_mem.py" --ranks 2 \
    --sizes 8,1K,8K,64K,256K,1M,4M,64M -n 20 -w 5 --rounds 5 --commit "$("$bundle/ringbell" --version | sed -n 's/.*commit \([0-9a-f]*\).*/\1/p')" \
    -J "$out/torch.json" > "$work/torch.out" 2>&1; then
    note passed torch-symmetric-memory $((SECONDS - start)) ""
    grep -E '^ *[0-9]' "$work/torch.out" | sed 's/^/    /'
  else
    note FAILED torch-symmetric-memory $((SECONDS - start)) "$(tail -n 1 "$work/torch.out" 2> /dev/null | cut -c1-60)"
  fi
}
run_pace() {
  local shared=()
  if [ "$gpus" -eq 1 ]; then
    mps_start
    shared=(--allow-shared-device)
  else
    mps_stop
  fi
  sweep pace-full-rate 120 --ranks 2 --device cuda "${shared[@]}" --sizes 8K -c 0 -n 1000000 --tail -J "$out/pace-full-rate.json"
  sweep pace-5000-held 100 --ranks 2 --device cuda "${shared[@]}" --sizes 8K -c 0 -n 100000 --rate 5000 --hold --tail -J "$out/pace-5000-held.json"
  sweep pace-5000 100 --ranks 2 --device cuda "${shared[@]}" --sizes 8K -c 0 -n 100000 --rate 5000 --tail -J "$out/pace-5000.json"
  grep -h '^#.*float32' "$work"/pace-*.out | sed 's/^/    /'
}

run_beside() {
  local code=0 start=$SECONDS allowed
  [ -x "$bundle/beside_bench" ] || { note missing beside_bench 0 "not in the bundle"; return; }
  allowed="$(limit 150)"
  [ "$allowed" -gt 0 ] || { note 'no time' beside_bench 0 ""; return; }
  mps_stop
  timeout -k 10 "$allowed" "$bundle/beside_bench" > "$out/beside.txt" 2> "$work/beside.err" || code=$?
  note "$([ "$code" -eq 0 ] && echo passed || echo FAILED)" beside_bench $((SECONDS - start)) "$(tail -n 1 "$work/beside.err" | cut -c1-60)"
  sed 's/^/    /' "$out/beside.txt"
}

# ---- memory checker --------------------------------------------------------------------------------------------------
run_sanitizer() {
  local tool code=0 start=$SECONDS log="$work/sanitizer.log" allowed
  for tool in compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer; do
    command -v "$tool" > /dev/null && break
  done
  command -v "$tool" > /dev/null || { note skipped memcheck 0 "no compute-sanitizer"; return; }
  mps_stop  # the tool does not follow MPS clients
  allowed="$(limit 240)"
  [ "$allowed" -gt 0 ] || { note 'no time' memcheck 0 ""; return; }
  RINGBELL_TIME_SCALE=50 timeout -k 10 "$allowed" "$tool" --tool memcheck --target-processes all --error-exitcode 86 \
    "$bundle/tests/gpu_all_reduce_test" --gtest_filter='*SmallSet*' > "$log" 2>&1 < /dev/null || code=$?
  { printf '==== memcheck: exit code %d\n' "$code"; cat "$log"; } >> "$out/session.log"
  if [ "$code" -eq 0 ] && grep -q '^\[       OK \]' "$log" && ! grep 'ERROR SUMMARY' "$log" | grep -qv ' 0 errors'; then
    note passed "memcheck on the small set" $((SECONDS - start)) \
      "$(grep -c 'ERROR SUMMARY: 0 errors' "$log") clean processes, $(awk '/ launches$/ { n += $(NF - 1) } END { print n + 0 }' "$log") launches"
  else
    note FAILED "memcheck on the small set" $((SECONDS - start)) "exit code $code"
    grep -vE '^\[ (RUN|      OK)' "$log" | tail -n 40 | sed 's/^/    /'
  fi
}

# ---- all -------------------------------------------------------------------------------------------------------------
{
  nvidia-smi -L
  nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1
  "$bundle/ringbell" --version
} 2>&1 | tee "$out/session.log"
case "$mode" in
  tests) run_tests ;;
  perf) run_perf ;;
  sanitizer) run_sanitizer ;;
  peers) run_peers ;;
  pace) run_pace ;;
  beside) run_beside ;;
  all)
    run_tests
    run_perf
    run_sanitizer
    ;;
esac
mps_stop
printf '\n%s\n' "---- $mode on $gpus GPU(s), $SECONDS s"
printf '%s\n' "${table[@]}" | cut -c1-110
[ "$failures" -eq 0 ]
