# shellcheck shell=bash
# What ./dev round-trip does: runs tests/round_trip/*_round_trip.py in a Python with the pinned PyTorch, against the programs
# of this build, and its wheel and deb. The Python is .deps/python; LOCKSTEP_PYTHON names another that has those packages.
# Two files run at a time, as most of what they do takes one core; with arguments for unittest all run in one process.

round_trip_requirements=tests/round_trip/requirements.txt

# Leaves in round_trip_python what runs the tests. A venv cannot be moved, so a copy of the requirements inside says that it
# is complete.
setup_python() {
  local folder=.deps/python
  round_trip_python=${LOCKSTEP_PYTHON:-$PWD/$folder/bin/python}
  [[ -z ${LOCKSTEP_PYTHON:-} ]] || return 0
  if ! cmp --silent "$round_trip_requirements" "$folder/requirements.txt"; then
    rm -rf "$folder"
    phase_step python python3 -m venv "$folder"
    phase_step PyTorch "$round_trip_python" -m pip install --disable-pip-version-check --no-cache-dir \
      --only-binary=:all: --requirement "$round_trip_requirements"
    cp "$round_trip_requirements" "$folder/requirements.txt"
  fi
}

# Prints the names of the files; first those that take longest.
round_trip_names() {
  printf '%s\n' wheel deb tests/round_trip/*_round_trip.py | sed 's#.*/##; s#_round_trip[.]py$##' | awk '!seen[$0]++'
}

# round_trip_one NAME prints one line, and all that was said if a test failed or there was none, which Python 3.11 lets pass.
round_trip_one() {
  local log=build/log/round-trip-$1.log status=0
  "$round_trip_python" -W ignore -m unittest discover \
    --start-directory tests/round_trip --pattern "$1_round_trip.py" >"$log" 2>&1 || status=$?
  grep -q '^Ran [1-9]' "$log" || status=1
  printf 'round-trip %-15s %s: %s\n' "$1" "$(sed -n 's/^Ran //p' "$log")" "$(tail -n 1 "$log")"
  ((status == 0)) || cat "$log"
  return "$status"
}

dev_round_trip() {
  packages+=("${packages_for_wheel[@]}" "${packages_for_deb[@]}" "${packages_for_round_trip[@]}")
  dev_build round_trip_programs component_train component_bench
  pack_wheel
  pack_deb
  phase_begin python
  setup_python
  phase_end
  export LOCKSTEP_BINARY_DIR=$PWD/$build_folder/bin PYTHONDONTWRITEBYTECODE=1 round_trip_python
  # Users' projects are the same ones each time.
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-$(command -v ccache || true)}
  if (($#)); then
    exec "$round_trip_python" -W ignore -m unittest discover --start-directory tests/round_trip \
      --pattern '*_round_trip.py' "$@"
  fi
  export -f round_trip_one
  # shellcheck disable=SC2016 # the variable is the inner shell's
  round_trip_names | xargs --max-procs=2 --max-args=1 bash -c 'round_trip_one "$1"' round-trip ||
    die "round-trip: failed; the whole is in build/log"
}
