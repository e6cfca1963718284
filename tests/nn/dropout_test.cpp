// Dropout by our kernels: which values are dropped, how many, and what comes back.

#include "lockstep/nn/fused/dropout.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "lockstep/nn/kernels.h"

namespace lockstep::nn::fused {
namespace {

constexpr double kShare = 0.3;
constexpr std::uint64_t kSeed = 0x0370734413198A2E;

// The known answers of Random123 for Threefry-2x32 with 20 rounds: of a key and counter of zeros.
TEST(Dropout, DrawsThreefrysNumbers) {
  constexpr std::uint32_t kFirst = 0x6B200159, kSecond = 0x99BA4EFE;
  const auto ones = at::ones({kDropoutBlock});
  for (const DropoutKernel* const kernel : dropout_kernels()) {
    const auto drops = [&](std::uint32_t below, std::int64_t place) {
      auto result = at::empty_like(ones);
      kernel->drop({.seed = 0,
                       .drop_below = below,
                       .scale = 1,
                       .inputs = ones.const_data_ptr<float>(),
                       .outputs = result.mutable_data_ptr<float>()},
          {0, 1}, kDropoutBlock);
      return result[place].item<float>() == 0;
    };
    EXPECT_TRUE(drops(kFirst + 1, 0)) << kernel->name;
    EXPECT_FALSE(drops(kFirst, 0)) << kernel->name;
    EXPECT_TRUE(drops(kSecond + 1, kDropoutBlock / 2)) << kernel->name;
    EXPECT_FALSE(drops(kSecond, kDropoutBlock / 2)) << kernel->name;
  }
}

TEST(Dropout, DropsTheShareAndScalesTheRest) {
  constexpr std::int64_t kCount = 1 << 20;
  const auto result = own_dropout(*dropout_kernels().back(), at::ones({kCount}), kShare, kSeed);
  const double kept = result.gt(0).sum().item<double>() / kCount;
  EXPECT_NEAR(kept, 1 - kShare, 5 * std::sqrt(kShare * (1 - kShare) / kCount));
  EXPECT_EQ(result.max().item<float>(), static_cast<float>(1 / (1 - kShare)));
}

TEST(Dropout, IsTheSameByAnyKernelAndNumberOfThreads) {
  const auto before = at::get_num_threads();
  for (const std::int64_t count : {1L, 31L, 33L, 100'001L}) {
    const auto input = at::randn({count}) + 10;
    const auto wanted = own_dropout(dropout_plain(), input, kShare, kSeed);
    for (const DropoutKernel* const kernel : dropout_kernels()) {
      for (const int threads : {1, 2}) {
        at::set_num_threads(threads);
        EXPECT_TRUE(at::equal(own_dropout(*kernel, input, kShare, kSeed), wanted))
            << kernel->name << ", " << count << ", " << threads;
      }
    }
  }
  at::set_num_threads(before);
}

TEST(Dropout, BackwardDropsTheSamePlacesHoweverTheGradientLies) {
  const auto input = (at::randn({12, 50}) + 10).requires_grad_();
  const auto output = own_dropout(*dropout_kernels().back(), input, kShare, kSeed);
  const auto gradient = (at::randn({50, 12}) + 10).t();
  const auto found = torch::autograd::grad({output}, {input}, {gradient}, true, true)[0];
  const auto factors = (output / input).detach();
  EXPECT_LE((found - gradient * factors).abs().max().item<double>(), 1e-5);
  EXPECT_TRUE(at::equal(found, torch::autograd::grad({output}, {input}, {gradient}, true)[0]))
      << "whether it is differentiated again or not";
}

// Programs take views of its output, and layers behind it want channels-last images.
TEST(Dropout, KeepsTheOrderOfMemory) {
  const KernelScope scope(Kernels::kOwn);
  const auto rows = (at::randn({4, 5, 6, 7}) + 10).requires_grad_();
  const auto images = (at::randn({4, 5, 6, 7}) + 10).contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& given : {rows.transpose(0, 2), images.detach().requires_grad_()}) {
    const auto output = at::dropout(given, kShare, true);
    EXPECT_EQ(output.strides(), given.strides());
    const auto gradient =
        torch::autograd::grad({output}, {given}, {at::ones({1}).expand_as(given)})[0];
    EXPECT_TRUE(at::equal(gradient.ne(0), output.ne(0)));
  }
  const auto gaps = at::randn({8, 6}).slice(1, 0, 3);
  EXPECT_FALSE(is_dropout_own(gaps, kShare));
}

// Rules for operators and snapshots know generators.
TEST(Dropout, FollowsTheGenerator) {
  const KernelScope scope(Kernels::kAuto);
  const auto ones = at::ones({1000});
  const auto drawn = [&](std::uint64_t seed) {
    torch::manual_seed(seed);
    return std::vector{at::dropout(ones, kShare, true), at::dropout(ones, kShare, true)};
  };
  const auto first = drawn(3), again = drawn(3), other = drawn(4);
  EXPECT_TRUE(at::equal(first[0], again[0]) && at::equal(first[1], again[1]));
  EXPECT_FALSE(at::equal(first[0], first[1]));
  EXPECT_FALSE(at::equal(first[0], other[0]));
}

TEST(Dropout, NothingAndAllAreLibTorchs) {
  const auto ones = at::ones({8});
  EXPECT_FALSE(is_dropout_own(ones, 0));
  EXPECT_FALSE(is_dropout_own(ones, 1));
  EXPECT_FALSE(is_dropout_own(ones.to(at::kDouble), kShare));
  EXPECT_TRUE(is_dropout_own(ones, kShare));
  const KernelScope scope(Kernels::kOwn);
  EXPECT_EQ(at::dropout(ones, 1, true).sum().item<float>(), 0);
  EXPECT_TRUE(at::equal(at::dropout(ones, kShare, false), ones)) << "in evaluation";
}

}  // namespace
}  // namespace lockstep::nn::fused
