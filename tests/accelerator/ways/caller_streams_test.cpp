// What threads that compute for another one take over from it, and what they leave as it was.

#include <gtest/gtest.h>

#include "tests/accelerator/runtime.h"
#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <c10/core/StreamGuard.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/operators/operator_rules.h"

namespace lockstep::emulated {
namespace {

const torch::Device kCallers(c10::kPrivateUse1, 0), kNextToIt(c10::kPrivateUse1, 1);

// On other streams they would compute before there is an input, and be read before there is an
// output.
TEST(StreamsOfTheCaller, AreThoseOfItsReplicas) {
  install();
  for (const std::uint64_t seed : {0U, 1U, 2U}) {
    torch::manual_seed(1);
    torch::nn::Linear net(4, 3);
    const torch::Tensor input = torch::rand({6, 4}), expected = net->forward(input * 2).detach();
    net->to(kCallers);
    DataParallel model(net, std::vector<Place>{{kCallers, {}}, {kNextToIt, {}}});
    Runtime::get().streams().set_seed(seed);
    const c10::MultiStreamGuard own(
        std::vector<c10::Stream>{Runtime::get().make_stream(kCallers.index()),
            Runtime::get().make_stream(kNextToIt.index())});
    const torch::Tensor output = model(input.to(kCallers) * 2).detach().cpu();
    Runtime::get().streams().set_seed(0);
    EXPECT_TRUE(torch::allclose(output, expected)) << seed;
  }
}

torch::Tensor drawn() { return at::rand({4}, kCallers).cpu(); }

TEST(RandomStreamOnDevices, LeavesTheDevicesOwnGeneratorAlone) {
  install();
  at::Generator own = at::globalContext().defaultGenerator(kCallers);
  own.set_current_seed(5);
  const torch::Tensor expected = drawn();
  own.set_current_seed(5);
  {
    const RandomStream stream(make_stream_generator(1, 0, 0));
    EXPECT_FALSE(drawn().equal(expected));
  }
  EXPECT_TRUE(drawn().equal(expected));
}

TEST(RandomStreamOnDevices, IsNotDisturbedByAnotherOnItsDevice) {
  install();
  const auto second_draw = [](bool disturbed) {
    const RandomStream stream(make_stream_generator(1, 0, 0));
    (void)drawn();
    if (disturbed) {
      const RandomStream other(make_stream_generator(1, 0, 1));
      (void)drawn();
    }
    return drawn();
  };
  EXPECT_TRUE(second_draw(true).equal(second_draw(false)));
}

// Its operator takes no generator on accelerators.
TEST(RandomStreamOnDevices, DropoutDrawsFromItToo) {
  install();
  const auto dropped = [] {
    const RandomStream stream(make_stream_generator(1, 0, 0));
    return at::dropout(at::ones({100}, kCallers), 0.5, /*train=*/true).cpu();
  };
  EXPECT_TRUE(dropped().equal(dropped()));
}

}  // namespace
}  // namespace lockstep::emulated
