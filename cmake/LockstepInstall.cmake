# lockstep::lockstep, the library for users, here and after find_package(Lockstep); and what `cmake --install` puts where,
# in six components. A target component_NAME builds what each installs:
#
#   core    what lockstep/lockstep.h needs, and the CMake package; neither bench nor launch nor downloads, and with these no
#           curl and no libarchive
#   train   lockstep::train, which lockstep/train/trainer.h needs, and the programs that `./dev train` builds
#   mpi     lockstep::mpi, which lockstep/comm/mpi/mpi_backend.h needs, where an MPI was found
#   bench   the programs of the studies; `cmake --install` leaves them out, and says so, where they are not built
#   package a CMake package that does not name the LibTorch of this build, over that of core: for ./dev wheel and ./dev deb
#   wheel   the extension of Python, by -DLOCKSTEP_PYTHON=ON; lets it and the others' programs run wherever pip unpacks them, beside
#           torch; for pyproject.toml alone

include(CMakePackageConfigHelpers)

add_library(lockstep_library INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_library)
set_target_properties(lockstep_library PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_library INTERFACE
  lockstep::balance lockstep::comm lockstep::data lockstep::data_parallel lockstep::fsdp lockstep::graceful_stop lockstep::nn
  lockstep::parallel lockstep::pipeline lockstep::place lockstep::sharded_optim lockstep::snapshot lockstep::sync_batch_norm)

# Sets the named variable to the targets and all libraries of ours below them.
function(lockstep_closure result)
  set(found "")
  set(waiting ${ARGN})
  while(waiting)
    list(POP_FRONT waiting target)
    get_target_property(aliased ${target} ALIASED_TARGET)
    if(aliased)
      set(target ${aliased})
    endif()
    if(NOT target IN_LIST found)
      list(APPEND found ${target})
      get_target_property(libraries ${target} INTERFACE_LINK_LIBRARIES)
      list(FILTER libraries INCLUDE REGEX "^lockstep::")
      list(APPEND waiting ${libraries})
    endif()
  endwhile()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

lockstep_closure(_lockstep_core lockstep_library)
lockstep_closure(_lockstep_train lockstep_train)
list(REMOVE_ITEM _lockstep_train ${_lockstep_core})
set(_lockstep_train_programs lockstep lockstep-train)
set(_lockstep_bench_programs lockstep-bench lockstep-collectives)
add_custom_target(component_core DEPENDS ${_lockstep_core})
add_custom_target(component_train DEPENDS component_core ${_lockstep_train} ${_lockstep_train_programs})
if(TARGET lockstep_mpi)
  add_custom_target(component_mpi DEPENDS component_core lockstep_mpi)
endif()
add_custom_target(component_bench DEPENDS ${_lockstep_bench_programs})

set(_lockstep_package "${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep")
install(TARGETS ${_lockstep_core} EXPORT LockstepTargets ARCHIVE COMPONENT core)
install(EXPORT LockstepTargets NAMESPACE lockstep:: DESTINATION ${_lockstep_package} COMPONENT core)
install(TARGETS ${_lockstep_train} EXPORT LockstepTrainTargets ARCHIVE COMPONENT train)
install(EXPORT LockstepTrainTargets NAMESPACE lockstep:: DESTINATION ${_lockstep_package} COMPONENT train)
if(TARGET lockstep_mpi)
  install(TARGETS lockstep_mpi EXPORT LockstepMpiTargets ARCHIVE COMPONENT mpi EXCLUDE_FROM_ALL)
  install(EXPORT LockstepMpiTargets NAMESPACE lockstep:: DESTINATION ${_lockstep_package} COMPONENT mpi EXCLUDE_FROM_ALL)
  export(EXPORT LockstepMpiTargets NAMESPACE lockstep:: FILE "${PROJECT_BINARY_DIR}/LockstepMpiTargets.cmake")
endif()
install(TARGETS ${_lockstep_train_programs} RUNTIME COMPONENT train)
install(TARGETS ${_lockstep_bench_programs} RUNTIME COMPONENT bench OPTIONAL)
foreach(_program ${_lockstep_bench_programs})
  install(CODE "if(NOT EXISTS \"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${_program}\")
    message(STATUS \"Left out: ${_program}, which is not built (target component_bench)\")
  endif()" COMPONENT bench)
endforeach()
if(TARGET lockstep_backend)
  install(TARGETS lockstep_backend LIBRARY DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
# Takes in every library that they need, but those of torch and those of the compiler, which torch needs, too. The path is a
# DT_RPATH, which is also where these libraries find each other.
install(CODE [[
  file(GLOB programs "${CMAKE_INSTALL_PREFIX}/bin/*")
  file(GLOB extension "${CMAKE_INSTALL_PREFIX}/_backend.*")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} MODULES ${extension} RESOLVED_DEPENDENCIES_VAR libraries
    PRE_EXCLUDE_REGEXES "^lib(torch|c10|c|m|stdc\\+\\+|gcc_s|resolv|dl|rt|pthread)[_.]" "^ld-linux")
  foreach(library IN LISTS libraries)
    get_filename_component(name "${library}" NAME)
    file(COPY_FILE "${library}" "${CMAKE_INSTALL_PREFIX}/lib/${name}")
  endforeach()
  execute_process(COMMAND_ERROR_IS_FATAL ANY
    COMMAND patchelf --force-rpath --set-rpath "$ORIGIN/../../torch/lib:$ORIGIN/../lib" ${programs})
  if(extension)
    execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND patchelf --force-rpath --set-rpath "$ORIGIN/lib" ${extension})
  endif()
]] COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/lockstep" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT core
  FILES_MATCHING PATTERN "*.h"
  PATTERN "lockstep/cli" EXCLUDE PATTERN "lockstep/launch" EXCLUDE PATTERN "lockstep/plan" EXCLUDE
  PATTERN "lockstep/report" EXCLUDE
  PATTERN "lockstep/formats/fetch" EXCLUDE PATTERN "lockstep/data/check" EXCLUDE PATTERN "lockstep/data/download" EXCLUDE)

# The folder with include/ and lib/ that this build used: the first guess of whoever uses the install. A wheel has torch beside
# it, Debian's package its own.
cmake_path(GET LibTorch_INCLUDE_DIR PARENT_PATH _lockstep_torch_dir)
set(_lockstep_torch_dir "\"${_lockstep_torch_dir}\"")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in" "${PROJECT_BINARY_DIR}/LockstepConfig.cmake"
  INSTALL_DESTINATION ${_lockstep_package})
set(_lockstep_torch_dir "")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in" "${PROJECT_BINARY_DIR}/package/LockstepConfig.cmake"
  INSTALL_DESTINATION ${_lockstep_package})
# install(FILES) would keep the other, which is as old.
install(CODE "file(COPY_FILE \"${PROJECT_BINARY_DIR}/package/LockstepConfig.cmake\"
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${_lockstep_package}/LockstepConfig.cmake\")" COMPONENT package EXCLUDE_FROM_ALL)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
# So that Lockstep_DIR may name the build folder, too.
export(EXPORT LockstepTargets NAMESPACE lockstep:: FILE "${PROJECT_BINARY_DIR}/LockstepTargets.cmake")
export(EXPORT LockstepTrainTargets NAMESPACE lockstep:: FILE "${PROJECT_BINARY_DIR}/LockstepTrainTargets.cmake")
foreach(_module FindLibTorch.cmake LockstepPlugin.cmake)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${_module}" "${PROJECT_BINARY_DIR}/${_module}" COPYONLY)
endforeach()
install(FILES
  "${PROJECT_BINARY_DIR}/LockstepConfig.cmake"
  "${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/LockstepPlugin.cmake"
  DESTINATION ${_lockstep_package} COMPONENT core)
