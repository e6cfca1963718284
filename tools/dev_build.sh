# shellcheck shell=bash
# What ./dev build does: configures when something that CMake would not notice has changed, then lets ninja work.

build_preset=release
build_folder=build/release

# Clang, where it is: the templates that LibTorch's headers use it makes once, into the precompiled header, g++ in every file.
build_compiler() {
  echo "${CXX:-$(command -v clang++-14 || true)}"
}

# Everything outside the CMake files that decides how the build is made.
build_choices() {
  echo "$libtorch_folder"
  echo "${LOCKSTEP_WERROR:-OFF}" "${LOCKSTEP_UNITY:-ON}" "$(build_compiler)" "${CXXFLAGS:-}" "${LDFLAGS:-}" "${CMAKE_PREFIX_PATH:-}"
  cat CMakePresets.json
}

configure() {
  CXX=$(build_compiler) cmake --fresh --preset "$build_preset" \
    -DLOCKSTEP_TORCH_DIR="$libtorch_folder" -DLOCKSTEP_WERROR="${LOCKSTEP_WERROR:-OFF}" \
    -DLOCKSTEP_UNITY="${LOCKSTEP_UNITY:-ON}"
}

build_configure() {
  local choices=$build_folder/dev_choices.txt
  if [[ ! -e $build_folder/build.ninja ]] || ! cmp --silent "$choices" <(build_choices); then
    rm -f "$choices"
    phase_step configure configure
    build_choices >"$choices"
  fi
}

# A file that includes LibTorch needs up to 2 GB while it is compiled.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 2000000)}' /proc/meminfo)
  ((memory >= 1)) || memory=1
  echo "${LOCKSTEP_JOBS:-$((cores < memory ? cores : memory))}"
}

build_targets() {
  local started
  started=$(milliseconds)
  phase_run compile ninja -C "$build_folder" -j "$(build_jobs)" "$@" || phase_fail compile
  grep -q '^ninja: no work to do' "$phase_log" || phase_steps+=", compile $(seconds_since "$started")"
}
