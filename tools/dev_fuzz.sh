# shellcheck shell=bash
# What ./dev fuzz does: builds every fuzz target, runs two at a time, fails when one of them finds something.
#
# build/fuzz/corpus/NAME keeps the inputs that reached new code, for the next run; build/fuzz/findings those that failed:
#   build/fuzz/bin/NAME build/fuzz/findings/NAME-crash-...   shows one again

fuzz_at_once=2

# fuzz_options NAME SECONDS prints the fuzzer's flags, one a line. A finding is also an input that takes 20 s or 2 GB.
fuzz_options() {
  printf '%s\n' -max_total_time="$2" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1
  printf '%s\n' -artifact_prefix="build/fuzz/findings/$1-"
  [[ ! -e tests/fuzz/$1.dict ]] || printf '%s\n' -dict="tests/fuzz/$1.dict"
}

# fuzz_one SECONDS NAME [SEEDS...]
fuzz_one() {
  local name=$2 corpus=build/fuzz/corpus/$2 log=build/log/fuzz-$2.log verdict=ok options
  mapfile -t options < <(fuzz_options "$name" "$1")
  shift 2
  mkdir -p "$corpus"
  "build/fuzz/bin/$name" "${options[@]}" "$corpus" "$@" >"$log" 2>&1 || verdict=failed
  printf 'fuzz     %-18s %-6s %s runs\n' "$name" "$verdict" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  [[ $verdict == ok ]] || { tail -n 40 "$log" && return 1; }
}

# Waits for one of those that run and counts it if it failed.
fuzz_wait() {
  wait -n || fuzz_failed=$((fuzz_failed + 1))
}

fuzz_all() {
  local name seeds running=0
  fuzz_failed=0
  mkdir -p build/fuzz/findings
  while read -r name seeds; do
    if ((running == fuzz_at_once)); then
      fuzz_wait
      running=$((running - 1))
    fi
    # shellcheck disable=SC2086 # seeds are folders of this repository, separated by blanks
    fuzz_one "$1" "$name" $seeds &
    running=$((running + 1))
  done <build/fuzz/fuzzers.txt
  for (( ; running > 0; --running)); do fuzz_wait; done
}

dev_fuzz() {
  local seconds=${1:-60}
  [[ $seconds =~ ^[0-9]+$ ]] || die "dev: fuzz takes the seconds for each target, not '$seconds'"
  packages+=("${packages_for_sanitizers[@]}")
  dev_setup
  build_preset=fuzz build_folder=build/fuzz
  phase_begin build
  build_configure
  build_targets fuzzers
  phase_end
  fuzz_all "$seconds"
  ((fuzz_failed == 0)) || die "fuzz: $fuzz_failed targets failed; their inputs are in build/fuzz/findings, the whole in build/log"
}
