#include "lockstep/data/pixels/pixel_kernel.h"

// Measured: the compiler's own vectors of the plain loop are as fast as hand-written ones; memory
// is the limit.
namespace lockstep::data {
namespace {

// Clang ignores the whole attribute where it does not know the width's name.
#ifdef __clang__
#define LOCKSTEP_AVX512_TARGET "avx512f,avx512bw,avx512vl,fma"
#else
#define LOCKSTEP_AVX512_TARGET "avx512f,avx512bw,avx512vl,fma,prefer-vector-width=512"
#endif

template <typename Out>
[[gnu::target(LOCKSTEP_AVX512_TARGET)]] void convert_avx512(const PixelRun& run, Out* out) {
  convert(run, out);
}

template <typename Out>
[[gnu::target("avx2,fma")]] void convert_avx2(const PixelRun& run, Out* out) {
  convert(run, out);
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

bool has_pixel_kernel(PixelKernel kernel) {
  return kernel == PixelKernel::kTable || (kernel == PixelKernel::kAvx2 && has_avx2()) ||
         (kernel == PixelKernel::kAvx512 && has_avx512());
}

PixelKernel fastest_pixel_kernel() {
  if (has_avx512()) return PixelKernel::kAvx512;
  return has_avx2() ? PixelKernel::kAvx2 : PixelKernel::kTable;
}

void convert_to_float(PixelKernel kernel, const PixelRun& run, float* out) {
  kernel == PixelKernel::kAvx512 ? convert_avx512(run, out) : convert_avx2(run, out);
}

void convert_to_bfloat16(PixelKernel kernel, const PixelRun& run, std::uint16_t* out) {
  kernel == PixelKernel::kAvx512 ? convert_avx512(run, out) : convert_avx2(run, out);
}

}  // namespace lockstep::data
