#include "lockstep/cli/env/environment_facts.h"

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

// Lists the variables that change how fast or where ranks run.
Facts variables() {
  Facts facts = Facts::object();
  for (const char* name :
      {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY", "LD_PRELOAD",
          "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES", "ONEDNN_MAX_CPU_ISA", "RANK", "WORLD_SIZE"}) {
    if (const auto value = environment(name)) facts[name] = *value;
  }
  return facts;
}

}  // namespace

Facts build_facts() {
  return {{"lockstep", LOCKSTEP_VERSION}, {"libtorch", LOCKSTEP_LIBTORCH_VERSION},
      {"compiler", compiler()}, {"c++", __cplusplus}, {"cmake", LOCKSTEP_CMAKE_VERSION},
      {"build_type", LOCKSTEP_BUILD_TYPE}, {"zlib", LOCKSTEP_ZLIB_VERSION},
      {"libpng", LOCKSTEP_LIBPNG_VERSION}, {"openssl", LOCKSTEP_OPENSSL_VERSION},
      {"curl", LOCKSTEP_CURL_VERSION}, {"libarchive", LOCKSTEP_LIBARCHIVE_VERSION},
      {"tomlplusplus", LOCKSTEP_TOML_VERSION},
      {"nlohmann_json", concat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".",
                            NLOHMANN_JSON_VERSION_PATCH)}};
}

Facts environment_facts() {
  Facts facts{{"v", 1}, {"build", build_facts()}};
  facts.update(host_facts());
  facts["variables"] = variables();
  return facts;
}

}  // namespace lockstep::cli
