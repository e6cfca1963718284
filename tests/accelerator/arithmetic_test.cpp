// What a device computes in; and memory that does not suffice is told as such, whichever way of
// training asks for it.

#include "lockstep/device/arithmetic.h"

#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <new>
#include <string>
#include <vector>

#include "tests/accelerator/runtime.h"
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/exit_code.h"
#include "lockstep/device/host_memory.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::emulated {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(AllowTf32, IsLibTorchsSwitchOfBoth) {
  const at::Context& context = at::globalContext();
  for (const bool on : {true, false}) {
    allow_tf32(on, !on);
    EXPECT_EQ(context.allowTF32CuBLAS(), on);
    EXPECT_EQ(context.allowTF32CuDNN(), !on);
  }
  allow_tf32(false, true);
}

// Which of them is faster, the CPU that emulates the device decides.
TEST(Bf16Speed, AsksTheDeviceAndLeavesItUsable) {
  install();
  const torch::Device device(c10::kPrivateUse1, 1);
  Runtime::get().take_counts();
  EXPECT_GT(bf16_speed(device), 0);
  const Counts counts = Runtime::get().take_counts();
  EXPECT_GE(counts.kernels, 2 * (1 + 3 * 4));
  EXPECT_EQ(counts.copies_to_device, 0);
  EXPECT_EQ(at::ones({2}, device).sum().item<float>(), 2);
}

TEST(Bf16Speed, IsMeasuredOnAProcessorThatHasInstructionsForIt) {
  const auto of = [](const std::string& features) {
    ::setenv("LOCKSTEP_TEST_CPU_FEATURES", features.c_str(), 1);
    const double speed = bf16_speed(torch::kCPU);
    ::unsetenv("LOCKSTEP_TEST_CPU_FEATURES");
    return speed;
  };
  EXPECT_GT(of(simd::processor_features() + " avx512_bf16"), 0);
  EXPECT_GT(of("amx_tile amx_bf16"), 0);
  EXPECT_EQ(of("avx2 avx512f avx512bw"), 0);
}

TEST(MemoryError, IsMadeOfWhatTheAllocatorsThrow) {
  try {
    at::empty({std::int64_t{1} << 50}, at::kCPU);
    FAIL() << "a petabyte";
  } catch (const std::exception& error) {
    const auto memory = as_memory_error(error);
    ASSERT_TRUE(memory.has_value()) << error.what();
    EXPECT_THAT(memory->what(), HasSubstr("out of memory: "));
    EXPECT_THAT(memory->what(), HasSubstr("4503599627370496 bytes"));
    EXPECT_THAT(memory->what(), HasSubstr("--batch-size"));
    EXPECT_THAT(memory->what(), Not(HasSubstr("\n")));
    EXPECT_EQ(exit_code_of(*memory), ExitCode::kEnvironment);
  }
  const c10::OutOfMemoryError of_device(
      {__func__, __FILE__, __LINE__}, "CUDA out of memory. Tried to allocate 2.00 GiB.\nMore.");
  EXPECT_THAT(as_memory_error(of_device)->what(), HasSubstr("Tried to allocate 2.00 GiB."));
  EXPECT_THAT(as_memory_error(of_device)->what(), Not(HasSubstr("More.")));
}

TEST(MemoryError, IsNotMadeOfOtherFailures) {
  EXPECT_FALSE(as_memory_error(std::bad_alloc()).has_value());
  EXPECT_FALSE(as_memory_error(c10::Error({__func__, __FILE__, __LINE__}, "shapes")).has_value());
}

struct GreedyImpl : torch::nn::Cloneable<GreedyImpl> {
  void reset() override {}

  torch::Tensor forward(const torch::Tensor& input) {
    return input + at::empty({std::int64_t{4} << 30}, input.options())[0];
  }
};
TORCH_MODULE(Greedy);

std::string memory_error_of(const std::function<void()>& training) {
  try {
    training();
  } catch (const std::exception& error) {
    const auto memory = as_memory_error(error);
    return memory ? memory->what() : concat("another failure: ", error.what());
  }
  return "no failure";
}

TEST(MemoryError, IsMadeOfWhatEachWayOfTrainingThrows) {
  install();
  const std::vector<Place> places = {{{c10::kPrivateUse1, 0}, {}}, {{c10::kPrivateUse1, 1}, {}}};
  const torch::Tensor input = at::ones({4, 3}, places[0].device);
  const auto greedy = [&] {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), Greedy());
    net->to(places[0].device);
    return net;
  };
  const auto too_much =
      HasSubstr("out of memory: emulated accelerator: tried to allocate 16384 MiB");
  EXPECT_THAT(memory_error_of([&] { greedy()->forward(input); }), too_much);
  EXPECT_THAT(memory_error_of([&] { DataParallel(greedy(), places)(input); }), too_much);
  EXPECT_THAT(memory_error_of([&] {
    Pipeline(layers_of(greedy()), {1, 1}, places)(input);
  }),
      too_much);
}

}  // namespace
}  // namespace lockstep::emulated
