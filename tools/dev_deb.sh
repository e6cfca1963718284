# shellcheck shell=bash
# What ./dev deb does: packs what ./dev install installs, and the LibTorch of this build, as a package for Debian into dist/.

deb_folder=build/deb

# Packs what component_train and component_bench have built. Below /usr, Debian has libraries in a folder for each architecture,
# which CMake knows.
pack_deb() {
  local component
  phase_begin deb
  rm -rf "$deb_folder" dist/lockstep_*.deb
  trap 'phase_unwatch; reset_install_cache >/dev/null' EXIT
  phase_step prefix cmake -D CMAKE_INSTALL_PREFIX=/usr "$build_folder"
  for component in core train bench package; do
    phase_step "$component" env DESTDIR="$PWD/$deb_folder" cmake --install "$build_folder" --component "$component" --strip
  done
  phase_step cache reset_install_cache
  trap phase_unwatch EXIT
  phase_step package tools/pack_deb "$deb_folder" "$libtorch_folder"
  phase_end
}

dev_deb() {
  packages+=("${packages_for_deb[@]}")
  dev_build component_train component_bench
  pack_deb
  ls dist/*.deb
}
