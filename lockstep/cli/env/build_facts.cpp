#include "lockstep/cli/env/build_facts.h"

#include <string>

#include <CLI/Version.hpp>

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

}  // namespace

Facts build_facts() {
  return {
      {"lockstep", LOCKSTEP_VERSION},
      {"libtorch", LOCKSTEP_LIBTORCH_VERSION},
      {"compiler", compiler()},
      {"c++", __cplusplus},
      {"cmake", LOCKSTEP_CMAKE_VERSION},
      {"build_type", LOCKSTEP_BUILD_TYPE},
      {"zlib", LOCKSTEP_ZLIB_VERSION},
      {"libpng", LOCKSTEP_LIBPNG_VERSION},
      {"openssl", LOCKSTEP_OPENSSL_VERSION},
      {"curl", LOCKSTEP_CURL_VERSION},
      {"libarchive", LOCKSTEP_LIBARCHIVE_VERSION},
      {"cli11", CLI11_VERSION},
      {"nlohmann_json", concat(
                            NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".",
                            NLOHMANN_JSON_VERSION_PATCH)}};
}

}  // namespace lockstep::cli
