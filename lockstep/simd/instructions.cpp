#include "lockstep/simd/instructions.h"

#include <fstream>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::simd {

bool has_instructions(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           has_feature(processor_features(), "avx2");
  if (set == InstructionSet::kAvx512)
    return has_instructions(InstructionSet::kAvx2) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && has_feature(processor_features(), "avx512f");
#endif
  return set == InstructionSet::kPlain;
}

bool has_vbmi_and_vnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

InstructionSet instructions_in_use() {
  constexpr const char* kNames[] = {"plain", "avx2", "avx512"};
  const auto wanted = environment("LOCKSTEP_SIMD");
  auto widest = InstructionSet::kPlain;
  for (const auto set : {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    const bool is_there = has_instructions(set);
    if (is_there) widest = set;
    if (wanted != kNames[static_cast<int>(set)]) continue;
    check(is_there, "LOCKSTEP_SIMD: this processor has no ", *wanted);
    return set;
  }
  check(!wanted, "LOCKSTEP_SIMD: must be plain, avx2 or avx512: ", wanted.value_or(""));
  return widest;
}

namespace {

// Of the first processor; empty if there is no such line.
std::string in_cpuinfo(std::string_view key) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with(key) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

std::string processor_name() {
  const std::string name = in_cpuinfo("model name");
  return name.empty() ? "unknown" : name;
}

// Read once: kernels ask in each layer, and the file takes the system as long as a layer computes.
std::string processor_features() {
  if (const auto stand_in = environment("LOCKSTEP_TEST_CPU_FEATURES")) return *stand_in;
  static const std::string kRead = in_cpuinfo("flags");
  return kRead;
}

bool has_feature(const std::string& features, std::string_view name) {
  const auto is_end = [&](std::size_t at) { return at == features.size() || features[at] == ' '; };
  for (auto at = features.find(name); at != std::string::npos; at = features.find(name, at + 1))
    if ((at == 0 || features[at - 1] == ' ') && is_end(at + name.size())) return true;
  return false;
}

}  // namespace lockstep::simd
