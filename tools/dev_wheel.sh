# shellcheck shell=bash
# What ./dev wheel does: packs what ./dev build makes as a wheel into dist/, by scikit-build-core as pyproject.toml says.

wheel_folder=.deps/wheel
wheel_programs=(lockstep lockstep-train lockstep-bench lockstep-collectives)

# What the build system asks for, in a venv of that Python; a copy of the list inside says that it is complete. After that, no
# network.
setup_wheel_builder() {
  local requirements python=${LOCKSTEP_PYTHON:-python3}
  mapfile -t requirements < <(grep '^requires = ' pyproject.toml | grep -o '"[^"]*"' | tr -d '"')
  ! cmp --silent "$wheel_folder/requirements.txt" <(printf '%s\n' "$python" "${requirements[@]}") || return 0
  rm -rf "$wheel_folder"
  phase_step python "$python" -m venv "$wheel_folder"
  phase_step scikit-build-core "$wheel_folder/bin/python" -m pip install --disable-pip-version-check --no-cache-dir \
    --only-binary=:all: "${requirements[@]}"
  printf '%s\n' "$python" "${requirements[@]}" >"$wheel_folder/requirements.txt"
}

# Packing leaves its prefix in the cache, the extension switched as the wheel needs it, and what CMake knows of the Python, by the
# path of its venv, where another version may be next time: after a failure, too.
reset_install_cache() {
  cmake -U 'SKBUILD*' -U 'Python_*' -U '_Python_*' -D LOCKSTEP_PYTHON=OFF -D CMAKE_INSTALL_PREFIX=/usr/local "$build_folder"
}

# Packs what component_train and component_bench have built. It needs no newer glibc than was here, and pip refuses older ones.
# Any Python may have it: but for the backend of torch.distributed, which is for this one's version and says so elsewhere, nothing
# in it is of one version.
pack_wheel() {
  local glibc python=$PWD/$wheel_folder/bin/python
  glibc=$(getconf GNU_LIBC_VERSION)
  glibc=${glibc#glibc }
  phase_begin wheel
  setup_wheel_builder
  rm -f dist/lockstep_torch-*.whl
  phase_step licences tools/gather_licenses build/licenses "$libtorch_folder" "${wheel_programs[@]/#/$build_folder/bin/}"
  trap 'phase_unwatch; reset_install_cache >/dev/null' EXIT
  LOCKSTEP_TORCH_DIR=$libtorch_folder CMAKE_BUILD_PARALLEL_LEVEL=$(build_jobs) PATH=$PWD/$wheel_folder/bin:$PATH phase_step wheel "$python" -m pip wheel --disable-pip-version-check \
    --no-deps --no-build-isolation --config-settings "build-dir=$build_folder" \
    --config-settings "cmake.define.Python_EXECUTABLE=$python" \
    --config-settings "wheel.force-include.build/licenses=\${SKBUILD_METADATA_DIR}/licenses" \
    --config-settings "wheel.tags=py3-none-manylinux_${glibc/./_}_$(uname -m)" --wheel-dir dist .
  phase_step cache reset_install_cache
  trap phase_unwatch EXIT
  phase_end
}

dev_wheel() {
  packages+=("${packages_for_wheel[@]}")
  dev_build component_train component_bench
  pack_wheel
  ls dist/*.whl
}
