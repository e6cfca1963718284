#pragma once

#include "lockstep/simd/processor.h"

namespace lockstep::nn {

/// Say whether this processor runs what sources compiled for AVX2 or AVX-512 contain (the flags in
/// lockstep/nn/CMakeLists.txt), and LOCKSTEP_TEST_CPU_FEATURES does not hide it.
#if defined(__x86_64__)
inline bool runs_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         has_feature(processor_features(), "avx2");
}
inline bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         has_feature(processor_features(), "avx512f");
}
#else
inline bool runs_avx2() { return false; }
inline bool runs_avx512() { return false; }
#endif

}  // namespace lockstep::nn
