#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Returns what /proc/cpuinfo lists as the flags of the first processor, separated by spaces; empty
/// where it has no such line. In tests LOCKSTEP_TEST_CPU_FEATURES stands in for it.
std::string processor_features();

/// Says whether a list has a feature, by its name in /proc/cpuinfo: `avx512_bf16`.
bool has_feature(const std::string& features, std::string_view name);

}  // namespace lockstep
