#include "lockstep/simd/processor.h"

#include <fstream>
#include <sstream>

#include "lockstep/core/environment.h"

namespace lockstep {

std::string processor_features() {
  if (const auto stand_in = environment("LOCKSTEP_TEST_CPU_FEATURES")) return *stand_in;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("flags")) return line.substr(line.find(':') + 1);
  return "";
}

bool has_feature(const std::string& features, std::string_view name) {
  std::istringstream words(features);
  for (std::string word; words >> word;)
    if (word == name) return true;
  return false;
}

}  // namespace lockstep
