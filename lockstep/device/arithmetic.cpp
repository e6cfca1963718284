#include "lockstep/device/arithmetic.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

constexpr int kProducts = 4, kTimes = 3;
constexpr std::int64_t kLarge = 1024;  // of square matrices

// On the CPU an operator is done when it returns.
void wait_for(const torch::Device& device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// The best of several, after one that loads the kernels.
double seconds_of_products(const torch::Device& device, torch::ScalarType type, std::int64_t size) {
  const torch::Tensor matrix = at::ones({size, size}, at::TensorOptions(type).device(device));
  at::mm(matrix, matrix);
  double best = std::numeric_limits<double>::infinity();
  for (int time = 0; time < kTimes; ++time) {
    wait_for(device);
    const Stopwatch watch;
    for (int product = 0; product < kProducts; ++product) at::mm(matrix, matrix);
    wait_for(device);
    best = std::min(best, watch.seconds());
  }
  return best;
}

}  // namespace

double product_flops_per_second(torch::Device device, torch::ScalarType type) {
  const at::NoGradGuard no_gradients;
  constexpr auto kEdge = static_cast<double>(kLarge);
  return 2 * kEdge * kEdge * kEdge * kProducts / seconds_of_products(device, type, kLarge);
}

double bf16_speed(torch::Device device) try {
  if (const char* known = std::getenv("LOCKSTEP_TEST_BF16_SPEED")) return std::atof(known);
  const at::NoGradGuard no_gradients;
  // A processor shows in small ones, and may take long for large ones that it emulates.
  const std::int64_t size = device.is_cpu() ? 256 : kLarge;
  return seconds_of_products(device, torch::kFloat, size) /
         seconds_of_products(device, torch::kBFloat16, size);
} catch (const c10::Error&) {
  return 0;  // an operator that the device has not
}

}  // namespace lockstep
