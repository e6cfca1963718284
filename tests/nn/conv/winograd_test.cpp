#include "lockstep/nn/conv/winograd.h"

#include <optional>

#include "tests/nn/conv/reference.h"
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

namespace lockstep::nn::conv {
namespace {

// Waiting for other threads would take most of the time of small shapes.
class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

// Every build and size of tile that this processor runs.
std::vector<const WinogradKernel*> all_kernels() {
  std::vector<const WinogradKernel*> kernels;
  for (const auto* build : winograd_builds()) {
    kernels.push_back(&build->small);
    kernels.push_back(&build->large);
  }
  return kernels;
}

Outcome outcome_of(const WinogradKernel& kernel, const Given& given, std::int64_t padding) {
  return {winograd_forward(kernel, given.images, given.weight, given.bias, padding),
      winograd_input_gradient(kernel, given.gradient, given.weight, padding),
      winograd_weight_gradient(kernel, given.images, given.gradient, given.weight, padding)};
}

bool has_same_bits(const Outcome& a, const Outcome& b) {
  return a.output.equal(b.output) && a.images.equal(b.images) && a.weight.equal(b.weight);
}

void expect_agrees(const WinogradKernel& kernel, const TestShape& shape) {
  SCOPED_TRACE(::testing::Message() << kernel.name << ", tile " << kernel.tile << ": " << shape);
  const Given given(shape);
  const Outcome exact = reference(given, shape.padding);
  const Outcome absolute = reference(given, shape.padding, true);
  const Outcome result = outcome_of(kernel, given, shape.padding);
  const double tolerance = tolerance_of(kernel.tile);
  expect_close(result.output, exact.output, absolute.output, tolerance, "output");
  expect_close(result.images, exact.images, absolute.images, tolerance, "gradient of images");
  expect_close(result.weight, exact.weight, absolute.weight, tolerance, "gradient of weight");
}

class WinogradShapes : public ::testing::TestWithParam<TestShape> {};

TEST_P(WinogradShapes, AgreeWithDoublePrecision) {
  torch::manual_seed(1);
  for (const auto* kernel : all_kernels()) expect_agrees(*kernel, GetParam());
}

// Images, inputs, outputs, height, width, padding.
INSTANTIATE_TEST_SUITE_P(Winograd, WinogradShapes,
    ::testing::Values(TestShape{1, 1, 1, 1, 1, 1}, TestShape{1, 1, 1, 3, 3, 0},
        TestShape{2, 3, 5, 2, 2, 1}, TestShape{1, 16, 16, 3, 3, 1}, TestShape{1, 8, 32, 4, 4, 0},
        TestShape{3, 33, 17, 5, 7, 1}, TestShape{2, 17, 33, 6, 9, 0},
        TestShape{1, 64, 64, 17, 19, 1}, TestShape{5, 40, 24, 13, 1, 1},
        TestShape{1, 20, 64, 1, 29, 1}, TestShape{16, 64, 128, 8, 8, 1},
        TestShape{2, 256, 96, 7, 7, 1}, TestShape{70, 32, 32, 10, 10, 0}));

// Small ones, so that edges are most of each.
TEST(Winograd, AgreesWithDoublePrecisionOnDrawnShapes) {
  const Threads one(1);
  torch::manual_seed(2);
  std::mt19937 generator(3);
  const auto kernels = all_kernels();
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t padding = between(generator, 0, 1), least = 3 - 2 * padding;
    const TestShape shape{.images = between(generator, 1, 3),
        .inputs = between(generator, 1, 40),
        .outputs = between(generator, 1, 40),
        .height = between(generator, least, 14),
        .width = between(generator, least, 14),
        .padding = padding};
    expect_agrees(*kernels[static_cast<std::size_t>(round) % kernels.size()], shape);
    if (::testing::Test::HasFailure()) return;
  }
}

// More tiles than a block has: first with sums for each part of them, then with one for all.
TEST(Winograd, SumsWeightGradientsOverBlocks) {
  torch::manual_seed(9);
  const auto& kernel = winograd_builds().back()->large;
  for (const TestShape& shape :
      {TestShape{7, 64, 64, 32, 32, 1}, TestShape{17, 144, 144, 32, 32, 1}}) {
    const auto plan =
        plan_weight_gradient(kernel, shape.images * 8 * 8, shape.inputs, shape.outputs);
    ASSERT_GT(shape.images * 8 * 8, plan.parts * plan.tiles) << "one block";
    EXPECT_EQ(plan.parts > 1, shape.inputs == 64);
    expect_agrees(kernel, shape);
  }
}

TEST(Winograd, DoesWithoutBias) {
  torch::manual_seed(4);
  const Given given({2, 9, 11, 6, 6, 1});
  for (const auto* kernel : all_kernels()) {
    const auto with = winograd_forward(*kernel, given.images, given.weight, given.bias, 1);
    const auto without = winograd_forward(*kernel, given.images, given.weight, {}, 1);
    EXPECT_TRUE(with.equal(without + given.bias.view({-1, 1, 1}))) << kernel->name;
  }
}

TEST(Winograd, TakesAnyLayout) {
  torch::manual_seed(5);
  const Given given({2, 19, 21, 6, 9, 1});
  Given other = given;
  other.images = given.images.contiguous();
  other.weight = given.weight.contiguous();
  other.gradient = given.gradient.contiguous();
  for (const auto* kernel : all_kernels()) {
    const Outcome a = outcome_of(*kernel, given, 1), b = outcome_of(*kernel, other, 1);
    EXPECT_TRUE(has_same_bits(a, b));
    EXPECT_TRUE(a.output.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(b.weight.strides(), other.weight.strides());
  }
}

// Shapes for one block and for many, and for both ways of summing the weights' gradient.
TEST(Winograd, HasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(6);
  for (const TestShape& shape : {TestShape{40, 64, 48, 14, 14, 1}, TestShape{3, 96, 200, 7, 7, 1},
           TestShape{90, 130, 160, 7, 7, 1}}) {
    const Given given(shape);
    for (const auto* kernel : all_kernels()) {
      std::optional<Outcome> one;
      for (const int threads : {1, 1, 2, 3}) {
        const Threads some(threads);
        const Outcome outcome = outcome_of(*kernel, given, shape.padding);
        EXPECT_TRUE(!one || has_same_bits(*one, outcome)) << kernel->name << ", " << threads;
        one = outcome;
      }
    }
  }
}

// A pipeline cuts a batch into parts: what comes out of an image must not depend on the others.
TEST(Winograd, AnImageHasTheSameBitsInAnyBatch) {
  torch::manual_seed(7);
  const Given given({7, 24, 40, 9, 9, 1});
  for (const auto* kernel : all_kernels()) {
    const auto all = winograd_forward(*kernel, given.images, given.weight, given.bias, 1);
    const auto one =
        winograd_forward(*kernel, given.images.narrow(0, 5, 1), given.weight, given.bias, 1);
    EXPECT_TRUE(one.equal(all.narrow(0, 5, 1))) << kernel->name;
  }
}

// The sums are those of the same values in fp32; only what is stored is rounded.
TEST(Winograd, InBf16RoundsOnlyItsResults) {
  torch::manual_seed(10);
  Given given({3, 21, 37, 9, 6, 1});
  for (auto* tensor : {&given.images, &given.weight, &given.bias, &given.gradient})
    *tensor = tensor->to(at::kBFloat16);
  Given wide = given;
  for (auto* tensor : {&wide.images, &wide.weight, &wide.bias, &wide.gradient})
    *tensor = tensor->to(at::kFloat);
  for (const auto* kernel : all_kernels()) {
    const Outcome exact = outcome_of(*kernel, wide, 1), result = outcome_of(*kernel, given, 1);
    EXPECT_TRUE(result.output.equal(exact.output.to(at::kBFloat16))) << kernel->name;
    EXPECT_TRUE(result.images.equal(exact.images.to(at::kBFloat16))) << kernel->name;
    EXPECT_TRUE(result.weight.equal(exact.weight.to(at::kBFloat16))) << kernel->name;
  }
}

TEST(Winograd, ANotANumberStaysInItsImage) {
  torch::manual_seed(8);
  const Given given({3, 8, 8, 9, 9, 1});
  given.images.select(0, 1).fill_(std::numeric_limits<float>::quiet_NaN());
  for (const auto* kernel : all_kernels()) {
    const auto output = winograd_forward(*kernel, given.images, given.weight, {}, 1);
    EXPECT_TRUE(output.select(0, 1).isnan().all().item<bool>()) << kernel->name;
    EXPECT_FALSE(output.select(0, 0).isnan().any().item<bool>()) << kernel->name;
    EXPECT_FALSE(output.select(0, 2).isnan().any().item<bool>()) << kernel->name;
  }
}

}  // namespace
}  // namespace lockstep::nn::conv
