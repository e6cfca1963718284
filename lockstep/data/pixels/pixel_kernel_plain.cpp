#include "lockstep/core/error.h"
#include "lockstep/data/pixels/pixel_kernel.h"

namespace lockstep::data {

bool has_pixel_kernel(PixelKernel kernel) { return kernel == PixelKernel::kTable; }
PixelKernel fastest_pixel_kernel() { return PixelKernel::kTable; }

void convert_to_float(PixelKernel, const PixelRun&, float*) {
  throw InvalidArgument("convert_to_float: this build has no vector kernel");
}

void convert_to_bfloat16(PixelKernel, const PixelRun&, std::uint16_t*) {
  throw InvalidArgument("convert_to_bfloat16: this build has no vector kernel");
}

}  // namespace lockstep::data
