#include "lockstep/nn/fused/conv_relu_pool_kernel.h"

namespace lockstep::nn::fused {
namespace {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

}  // namespace

ConvReluPoolKernels conv_relu_pool_kernels() {
  ConvReluPoolKernels found{{&conv_relu_pool_plain()}, 1};
  if (has_avx2()) found.kernels[found.count++] = &conv_relu_pool_avx2();
  if (has_avx512()) found.kernels[found.count++] = &conv_relu_pool_avx512();
  return found;
}

}  // namespace lockstep::nn::fused
