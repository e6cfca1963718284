#include "lockstep/device/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/simd/instructions.h"

namespace lockstep {
namespace {

constexpr int kCalls = 4, kTimes = 3;
constexpr double kLong = 1e-3;  // seconds; the launch of a kernel is negligible
constexpr std::int64_t kSmall = 256, kLarge = 1024, kLargest = 8192;  // edges of matrices

// The best of several, after one that loads the kernels.
double seconds_of(const torch::Device& device, const std::function<void()>& call) {
  call();
  double best = std::numeric_limits<double>::infinity();
  for (int time = 0; time < kTimes; ++time) {
    synchronize(device);
    const Stopwatch watch;
    for (int repeat = 0; repeat < kCalls; ++repeat) call();
    synchronize(device);
    best = std::min(best, watch.seconds() / kCalls);
  }
  return best;
}

double seconds_of_product(const torch::Device& device, torch::ScalarType type, std::int64_t size) {
  const torch::Tensor matrix = at::ones({size, size}, at::TensorOptions(type).device(device));
  return seconds_of(device, [&] { at::mm(matrix, matrix); });
}

struct Timed {
  std::int64_t size;
  double seconds;
};

// Whether products in it may have instructions of their own: where nothing is known, they may.
bool may_have_bfloat16(const std::string& features) {
  return features.empty() || simd::has_feature(features, "amx_bf16") ||
         simd::has_feature(features, "avx512_bf16");
}

// Doubles a size until the call is long, so that it occupies the device.
Timed occupying(
    std::int64_t size, std::int64_t most, const std::function<double(std::int64_t)>& seconds) {
  Timed timed{size, seconds(size)};
  while (timed.seconds < kLong && timed.size < most)
    timed = {timed.size * 2, seconds(timed.size * 2)};
  return timed;
}

Timed occupying_product(const torch::Device& device, torch::ScalarType type) {
  return occupying(device.is_cpu() ? kLarge : kSmall, kLargest,
      [&](std::int64_t edge) { return seconds_of_product(device, type, edge); });
}

torch::Tensor channels_last_ones(
    at::IntArrayRef sizes, torch::Device device, torch::ScalarType type) {
  return at::ones(sizes, at::TensorOptions(type).device(device))
      .contiguous(at::MemoryFormat::ChannelsLast);
}

// Of a layer as in the middle of a ResNet.
constexpr std::int64_t kChannels = 128, kEdge = 14, kTaps = 9;

// Forward, and both gradients.
double seconds_of_convolutions(
    const torch::Device& device, torch::ScalarType type, std::int64_t count) {
  const auto images = channels_last_ones({count, kChannels, kEdge, kEdge}, device, type);
  const auto weight = channels_last_ones({kChannels, kChannels, 3, 3}, device, type);
  const std::vector<std::int64_t> ones{1, 1}, zeros{0, 0};
  return seconds_of(device, [&] {
    const torch::Tensor maps = at::conv2d(images, weight, {}, 1, 1);
    at::convolution_backward(maps, images, weight, at::OptionalIntArrayRef(), ones, ones, ones,
        /*transposed=*/false, zeros, /*groups=*/1, {true, true, false});
  });
}

}  // namespace

double product_flops_per_second(torch::Device device, torch::ScalarType type) {
  const at::NoGradGuard no_gradients;
  const Timed product = occupying_product(device, type);
  return 2 * std::pow(static_cast<double>(product.size), 3) / product.seconds;
}

double convolution_flops_per_second(torch::Device device, torch::ScalarType type) {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t kMostImages = 256;
  const Timed images = occupying(1, kMostImages,
      [&](std::int64_t count) { return seconds_of_convolutions(device, type, count); });
  const std::int64_t products = images.size * kChannels * kChannels * kEdge * kEdge * kTaps;
  return 3 * 2 * static_cast<double>(products) / images.seconds;
}

double bf16_speed(torch::Device device) try {
  if (const char* known = std::getenv("LOCKSTEP_TEST_BF16_SPEED")) return std::atof(known);
  if (device.is_cpu() && !may_have_bfloat16(simd::processor_features())) return 0;
  const at::NoGradGuard no_gradients;
  // A processor shows in small ones, and may take long for large ones that it emulates.
  const Timed product = device.is_cpu()
                            ? Timed{kSmall, seconds_of_product(device, torch::kBFloat16, kSmall)}
                            : occupying_product(device, torch::kBFloat16);
  return seconds_of_product(device, torch::kFloat, product.size) / product.seconds;
} catch (const c10::Error&) {
  return 0;  // the device lacks an operator
}

}  // namespace lockstep
