#pragma once

// Note [Kernels per instruction set]
//
// A kernel whose loops gain from wider vectors is compiled several times, each time with the flags
// of one instruction set, and the build to run is chosen when it is first needed.
// lockstep_kernels() of cmake/LockstepTargets.cmake compiles such a source and names each build:
// LOCKSTEP_BUILD of simd/vectors.h. Sources and headers of kernels take nothing from headers with
// inline functions: the linker could keep a copy with new instructions for the whole program. This
// header is not for them, either.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::simd {

/// The instruction sets that kernels are compiled for, the narrowest first.
enum class InstructionSet { kPlain, kAvx2, kAvx512 };

/// Returns whether this processor has all that sources compiled for a set use: AVX2 with FMA;
/// AVX-512 F, BW, VL and DQ beside these.
bool has_instructions(InstructionSet set);

/// Returns whether the processor has VBMI and VNNI beside AVX-512.
bool has_vbmi_and_vnni();

/// Returns the set that kernels use: the widest that this processor has, or the one that
/// LOCKSTEP_SIMD=plain|avx2|avx512 names. Throws InvalidArgument if there is no such set here.
InstructionSet instructions_in_use();

/// Returns those builds of a kernel that may run, the fastest last; all of them stand in the order
/// of InstructionSet.
template <typename Build>
std::span<const Build> usable(const Build (&builds)[3]) {
  return std::span(builds).first(static_cast<std::size_t>(instructions_in_use()) + 1);
}

/// Returns what /proc/cpuinfo calls the first processor; `unknown` where it has no such line.
std::string processor_name();

/// Returns what /proc/cpuinfo lists as the flags of the first processor, separated by spaces; empty
/// where it has no such line. In tests LOCKSTEP_TEST_CPU_FEATURES stands in for it.
std::string processor_features();

/// Returns whether a list has a feature, by its name in /proc/cpuinfo: `avx512_bf16`.
bool has_feature(const std::string& features, std::string_view name);

}  // namespace lockstep::simd
