// Memory of a device that does not suffice is told as such, whichever way of training asks for it.

#include "lockstep/device/memory_error.h"

#include <functional>
#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "tests/accelerator/runtime.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep::emulated {
namespace {

using ::testing::HasSubstr;

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
