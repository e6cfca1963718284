# Finds LibTorch in a PyPI wheel, an unpacked libtorch archive, or a prefix of the user's own.
#
# Looks in LOCKSTEP_TORCH_DIR (cache or environment), CMAKE_PREFIX_PATH, then the folder that `./dev setup` fills.
# Makes the imported target LibTorch::cpu. torch's own package file is not used: for a CUDA wheel it insists on a CUDA
# toolkit, though CPU programs need none of it.

set(LOCKSTEP_TORCH_DIR "$ENV{LOCKSTEP_TORCH_DIR}" CACHE PATH "The folder that holds include/torch and lib/libtorch_cpu.so")

set(_libtorch_hints ${LOCKSTEP_TORCH_DIR} ${LOCKSTEP_TORCH_DIR}/torch)
if(NOT LOCKSTEP_TORCH_DIR)
  foreach(_prefix ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH})
    list(APPEND _libtorch_hints ${_prefix} ${_prefix}/torch ${_prefix}/../.. ${_prefix}/../../..)
  endforeach()
  file(GLOB _libtorch_own "${CMAKE_CURRENT_LIST_DIR}/../.deps/libtorch-*/torch")
  list(SORT _libtorch_own COMPARE NATURAL ORDER DESCENDING)
  list(APPEND _libtorch_hints ${_libtorch_own})
endif()

find_path(LibTorch_INCLUDE_DIR torch/csrc/api/include/torch/types.h
  HINTS ${_libtorch_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${_libtorch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${_libtorch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)

if(LibTorch_INCLUDE_DIR AND EXISTS "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h")
  file(STRINGS "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h" _libtorch_version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]" "" _libtorch_version "${_libtorch_version}")
  string(REPLACE ";" "." LibTorch_VERSION "${_libtorch_version}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run ./dev setup, or set LOCKSTEP_TORCH_DIR to a LibTorch of your own (2.11 or newer).")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  # The wheel keeps the CUDA runtime, which libtorch_cpu names as needed, in folders beside torch/.
  file(GLOB _libtorch_cuda "${LibTorch_INCLUDE_DIR}/../../nvidia/*/lib")
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES
    IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  add_library(LibTorch::cpu SHARED IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES
    IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}"
    INTERFACE_LINK_LIBRARIES LibTorch::c10)
  foreach(_folder ${_libtorch_cuda})
    target_link_options(LibTorch::cpu INTERFACE "LINKER:-rpath-link,${_folder}")
  endforeach()
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)
