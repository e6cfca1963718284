# lockstep_plugin(NAME SOURCES a.cpp ...) makes NAME.so, which `lockstep train --plugin NAME.so` takes: docs/plugins.md.
function(lockstep_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  add_library(${name} MODULE ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX "")
  target_compile_features(${name} PRIVATE cxx_std_20)
  # Headers alone: the program that loads it has the library.
  target_include_directories(${name} PRIVATE $<TARGET_PROPERTY:lockstep::core,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${name} PRIVATE LibTorch::cpu)
endfunction()
