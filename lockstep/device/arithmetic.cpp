#include "lockstep/device/arithmetic.h"

#include <algorithm>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSize = 1024;  // of square matrices
constexpr int kProducts = 4, kTimes = 3;
constexpr double kFaster = 1.2;  // as much as autocast's conversions may cost

// The best of several, after one that loads the kernels.
double seconds_of_products(const torch::Device& device, torch::ScalarType type) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const torch::Tensor matrix = at::ones({kSize, kSize}, at::TensorOptions(type).device(device));
  at::mm(matrix, matrix);
  double best = std::numeric_limits<double>::infinity();
  for (int time = 0; time < kTimes; ++time) {
    guard.synchronizeDevice(device.index());
    const Stopwatch watch;
    for (int product = 0; product < kProducts; ++product) at::mm(matrix, matrix);
    guard.synchronizeDevice(device.index());
    best = std::min(best, watch.seconds());
  }
  return best;
}

}  // namespace

bool is_bf16_fast(torch::Device device) try {
  const at::NoGradGuard no_gradients;
  return seconds_of_products(device, torch::kFloat) >
         kFaster * seconds_of_products(device, torch::kBFloat16);
} catch (const c10::Error&) {
  return false;  // an operator that the device has not
}

}  // namespace lockstep
