# lockstep::lockstep, the library for users, here and after find_package(Lockstep); and what `cmake --install` puts where.
#
# Installed are the libraries that lockstep/lockstep.h and lockstep/train/trainer.h need, and the programs. What serves the
# command alone (bench, launch, downloads, and with them curl and libarchive) stays out of users' programs.

include(CMakePackageConfigHelpers)

add_library(lockstep_library INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_library)
set_target_properties(lockstep_library PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_library INTERFACE
  lockstep::balance lockstep::comm lockstep::data lockstep::data_parallel lockstep::nn lockstep::parallel lockstep::pipeline
  lockstep::place lockstep::sharded_optim lockstep::snapshot lockstep::sync_batch_norm)

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

lockstep_closure(_lockstep_installed lockstep_library lockstep_train)
add_custom_target(installed_libraries DEPENDS ${_lockstep_installed})
set(_lockstep_package "${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep")
install(TARGETS ${_lockstep_installed} EXPORT LockstepTargets)
install(EXPORT LockstepTargets NAMESPACE lockstep:: DESTINATION ${_lockstep_package})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/lockstep" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h"
  PATTERN "lockstep/bench" EXCLUDE PATTERN "lockstep/cli" EXCLUDE PATTERN "lockstep/launch" EXCLUDE
  PATTERN "lockstep/formats/fetch" EXCLUDE PATTERN "lockstep/data/check" EXCLUDE PATTERN "lockstep/data/download" EXCLUDE
  PATTERN "lockstep/data/synthetic" EXCLUDE)

# The folder with include/ and lib/ that this build used: the first guess of whoever uses the install.
get_filename_component(_lockstep_torch_dir "${LibTorch_INCLUDE_DIR}" DIRECTORY)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in" "${PROJECT_BINARY_DIR}/LockstepConfig.cmake"
  INSTALL_DESTINATION ${_lockstep_package})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
# So that Lockstep_DIR may name the build folder, too.
export(EXPORT LockstepTargets NAMESPACE lockstep:: FILE "${PROJECT_BINARY_DIR}/LockstepTargets.cmake")
configure_file("${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${PROJECT_BINARY_DIR}/FindLibTorch.cmake" COPYONLY)
install(FILES
  "${PROJECT_BINARY_DIR}/LockstepConfig.cmake"
  "${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION ${_lockstep_package})
