# lockstep::lockstep, the whole library for users, here and after find_package(Lockstep); and what `cmake --install`
# puts where. Each layer and the programs install themselves where they are defined.

include(CMakePackageConfigHelpers)

get_property(_lockstep_libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
add_library(lockstep_library INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_library)
set_target_properties(lockstep_library PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_library INTERFACE ${_lockstep_libraries})

set(_lockstep_package "${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep")
install(TARGETS lockstep_library EXPORT LockstepTargets)
install(EXPORT LockstepTargets NAMESPACE lockstep:: DESTINATION ${_lockstep_package})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/lockstep" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "lockstep/cli" EXCLUDE)

# The folder with include/ and lib/ that this build used: the first guess of whoever uses the install.
get_filename_component(_lockstep_torch_dir "${LibTorch_INCLUDE_DIR}" DIRECTORY)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in" "${PROJECT_BINARY_DIR}/LockstepConfig.cmake"
  INSTALL_DESTINATION ${_lockstep_package} NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
# So that Lockstep_DIR may name the build folder, too.
export(EXPORT LockstepTargets NAMESPACE lockstep:: FILE "${PROJECT_BINARY_DIR}/LockstepTargets.cmake")
configure_file("${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${PROJECT_BINARY_DIR}/FindLibTorch.cmake" COPYONLY)
install(FILES
  "${PROJECT_BINARY_DIR}/LockstepConfig.cmake"
  "${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION ${_lockstep_package})
