# The one way in which this project makes its libraries, programs and tests.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

option(LOCKSTEP_WERROR "Treat warnings as errors" OFF)
option(LOCKSTEP_UNITY "Compile the files of a target in groups: half the time for all of them, some seconds more for one" ON)
set(LOCKSTEP_SANITIZE "" CACHE STRING
  "Sanitizers for every target: address,undefined or thread; fuzzer-no-link,address,undefined for tests/fuzz")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache must overlook what a precompiled header hides from it (its manual, "Precompiled headers"); with paths counted from
  # the project's folder, clones in different places share what they compiled.
  set(lockstep_sloppiness pch_defines,time_macros,include_file_mtime,include_file_ctime)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env")
  list(APPEND CMAKE_CXX_COMPILER_LAUNCHER
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "CCACHE_SLOPPINESS=${lockstep_sloppiness}" "${LOCKSTEP_CCACHE}")
endif()

# Flags that a precompiled header fixes for all who use it: set them for the whole project or not at all.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A file with LibTorch needs 1.1 GB anyway; collecting garbage early would take a tenth of the compiler's time.
  add_compile_options(-fpch-preprocess --param=ggc-min-expand=400 --param=ggc-min-heapsize=1500000)
  # GCC 12 warns of designated initializers that leave members at their defaults, and of what an optional does not hold.
  add_compile_options(-Wno-missing-field-initializers -Wno-maybe-uninitialized)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Times in the precompiled header would hide from ccache that a fresh clone has the same one.
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()
if(LOCKSTEP_WERROR)
  add_compile_options(-Werror)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE MATCHES "fuzzer")
    add_compile_options(-fno-sanitize-recover=all)  # a finding ends the fuzzer, so that it is kept
  endif()
  if(LOCKSTEP_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # LibTorch's headers have fences, which the sanitizer does not understand
  endif()
else()
  add_compile_options(-fstack-protector-strong $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
  add_link_options(LINKER:-z,relro,-z,now)
endif()

# lockstep_library(NAME [TORCH] SOURCES a.cpp ... [DEPENDS target ...])
# makes liblockstep_NAME.a and its alias lockstep::NAME. TORCH: may include LibTorch, uses the precompiled header.
function(lockstep_library name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(lockstep_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPENDS})
  if(arg_TORCH)
    target_link_libraries(lockstep_${name} PUBLIC LibTorch::cpu)
    lockstep_use_precompiled_torch(lockstep_${name})
  endif()
  lockstep_group_sources(lockstep_${name})
endfunction()

# lockstep_kernels(NAME SOURCES a.cpp ... FLAGS flag ... [X86_FLAGS flag ...])
# adds to liblockstep_NAME.a each source once for each instruction set: see Note [Kernels per instruction set] in
# lockstep/simd/instructions.h, which asks the processor for exactly these. X86_FLAGS are for AVX2 and AVX-512. No other source
# of that library may use newer instructions. On other processors all builds are the same.
function(lockstep_kernels name)
  cmake_parse_arguments(arg "" "" "SOURCES;FLAGS;X86_FLAGS" ${ARGN})
  set(flags_plain "")
  set(flags_avx2 "")
  set(flags_avx512 "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(flags_avx2 -mavx2 ${arg_X86_FLAGS})
    set(flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq ${arg_X86_FLAGS} -mprefer-vector-width=512)
  endif()
  foreach(instructions IN ITEMS plain avx2 avx512)
    set(build lockstep_${name}_${instructions})
    add_library(${build} OBJECT ${arg_SOURCES})
    target_include_directories(${build} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_compile_definitions(${build} PRIVATE LOCKSTEP_INSTRUCTIONS=${instructions})
    target_compile_options(${build} PRIVATE ${arg_FLAGS} ${flags_${instructions}})
    target_sources(lockstep_${name} PRIVATE $<TARGET_OBJECTS:${build}>)
  endforeach()
endfunction()

# lockstep_program(NAME [TORCH|WHOLE_TORCH] SOURCES a.cpp ... [DEPENDS target ...])
# WHOLE_TORCH: includes <torch/torch.h>, as a user's program does.
function(lockstep_program name)
  cmake_parse_arguments(arg "TORCH;WHOLE_TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  if(arg_TORCH OR arg_WHOLE_TORCH)
    target_link_libraries(${name} PRIVATE LibTorch::cpu)
    # A program would be compiled as -fPIE; the precompiled header was made with -fPIC.
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
    if(arg_WHOLE_TORCH)
      lockstep_precompile_torch(${name} lockstep_whole_torch <torch/torch.h>)
    else()
      lockstep_use_precompiled_torch(${name})
    endif()
  endif()
  lockstep_group_sources(${name})
endfunction()

# lockstep_guard(RESULT SECONDS): the seconds are what a test may take by itself; four times that guards against hangs, also
# where other programs have the cores.
function(lockstep_guard result seconds)
  math(EXPR guard "4 * ${seconds}")
  set(${result} ${guard} PARENT_SCOPE)
endfunction()

# Each of the hundreds of trainings that tests of processes start would measure it, and say what suits this processor;
# Bf16Speed and what is started outside of ctest do.
set(lockstep_known_bf16_speed "LOCKSTEP_TEST_BF16_SPEED=1")

# lockstep_test(NAME [TORCH] LABEL unit|process SOURCES ... [DEPENDS ...] [TIMEOUT s])
# makes one GoogleTest binary and one ctest entry: each start pays for loading LibTorch, so one binary a layer.
function(lockstep_test name)
  cmake_parse_arguments(arg "TORCH" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  set(torch "")
  if(arg_TORCH)
    set(torch TORCH)
  endif()
  lockstep_program(${name} ${torch} SOURCES ${arg_SOURCES} DEPENDS ${arg_DEPENDS} GTest::gmock GTest::gtest_main)
  # A fifth of the compiler's time for tests; what they test is optimised as for users.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(LOCKSTEP_UNITY AND NOT arg_TORCH)
    lockstep_use_precompiled_googletest(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  lockstep_guard(guard ${arg_TIMEOUT})
  # The longest first: no core waits for one of them at the end.
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABEL}" TIMEOUT ${guard} COST ${arg_TIMEOUT}
    ENVIRONMENT "OMP_NUM_THREADS=1;LOCKSTEP_BINARY_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  if(arg_LABEL STREQUAL process)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${lockstep_known_bf16_speed})
  endif()
endfunction()

# lockstep_test_over_backends(NAME FILTER [BACKEND...]) runs tests whose ranks are those of testing::run_ranks() again, connected
# by each other backend, and by more: `hosts_01` is the hierarchical one, with ranks on two hosts. LibTorch 2.11 cannot have
# several Gloo groups in one process.
function(lockstep_test_over_backends name filter)
  lockstep_guard(guard 600)
  foreach(backend IN ITEMS shm gloo ${ARGN})
    if(NOT backend STREQUAL "shm" AND LibTorch_VERSION VERSION_LESS 2.15)
      continue()
    endif()
    add_test(NAME ${name}_${backend} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${name}_${backend} PROPERTIES LABELS unit TIMEOUT ${guard} COST 200
      ENVIRONMENT "OMP_NUM_THREADS=1;LOCKSTEP_TEST_BACKEND=${backend}")
  endforeach()
endfunction()

# lockstep_test_on_devices(NAME FILTER) runs tests again on the emulated accelerator, see tests/accelerator: with NCCL on its
# streams, and by way of the host.
function(lockstep_test_on_devices name filter)
  lockstep_guard(guard 600)
  target_link_libraries(${name} PRIVATE emulated_accelerator emulated_nccl nccl_functions)
  foreach(device IN ITEMS emulated staged)
    add_test(NAME ${name}_${device} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${name}_${device} PROPERTIES LABELS unit TIMEOUT ${guard} COST 200
      ENVIRONMENT "OMP_NUM_THREADS=1;LOCKSTEP_TEST_DEVICE=${device}")
  endforeach()
endfunction()

# LibTorch's headers cost seconds a file; they are parsed once, here.
function(lockstep_use_precompiled_torch target)
  lockstep_precompile_torch(${target} lockstep_torch_headers
    <torch/types.h> <torch/nn/module.h> <torch/optim/optimizer.h> <chrono> <functional> <memory> <optional> <string> <vector>)
endfunction()

# lockstep_precompile_torch(TARGET NAME HEADERS...): the target uses the precompiled header of that name, made of these headers.
function(lockstep_precompile_torch target name)
  if(NOT TARGET ${name})
    file(WRITE "${PROJECT_BINARY_DIR}/${name}.cpp" "")
    add_library(${name} OBJECT "${PROJECT_BINARY_DIR}/${name}.cpp")
    target_link_libraries(${name} PRIVATE LibTorch::cpu)
    target_precompile_headers(${name} PRIVATE ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

# GoogleTest's headers and JSON's cost seconds a file, too.
function(lockstep_use_precompiled_googletest target)
  if(NOT TARGET lockstep_googletest_headers)
    file(WRITE "${PROJECT_BINARY_DIR}/googletest_headers.cpp" "")
    add_library(lockstep_googletest_headers OBJECT "${PROJECT_BINARY_DIR}/googletest_headers.cpp")
    target_link_libraries(lockstep_googletest_headers PRIVATE GTest::gmock nlohmann_json::nlohmann_json)
    # As programs are compiled.
    set_target_properties(lockstep_googletest_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(lockstep_googletest_headers PRIVATE -fPIE)
    target_precompile_headers(lockstep_googletest_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)
  endif()
  target_precompile_headers(${target} REUSE_FROM lockstep_googletest_headers)
endfunction()

# Compiles the files of a target in groups of about equal size, nine at most: LibTorch's headers and the instantiations
# that g++ leaves to the end of each file cost six seconds, the standard library's one. Names in the unnamed namespaces of a
# target's files must differ.
function(lockstep_group_sources target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(LOCKSTEP_UNITY AND count GREATER 1)
    math(EXPR groups "(${count} + 8) / 9")
    math(EXPR size "(${count} + ${groups} - 1) / ${groups}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # What is in a namespace without name is its own file's, whatever file includes that.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
