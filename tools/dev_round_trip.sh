# shellcheck shell=bash
# What ./dev round-trip does: runs tests/round_trip/*_round_trip.py in a Python with the pinned PyTorch, against the programs
# of this build, and its wheel and deb. The Python is .deps/python; LOCKSTEP_PYTHON names another that has those packages.

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

dev_round_trip() {
  packages+=("${packages_for_wheel[@]}" "${packages_for_deb[@]}" "${packages_for_round_trip[@]}")
  dev_build round_trip_programs component_train component_bench
  pack_wheel
  pack_deb
  phase_begin python
  setup_python
  phase_end
  export LOCKSTEP_BINARY_DIR=$PWD/$build_folder/bin PYTHONDONTWRITEBYTECODE=1
  exec "$round_trip_python" -W ignore -m unittest discover --start-directory tests/round_trip \
    --pattern '*_round_trip.py' "$@"
}
