// Parameters and buffers that each rank keeps to itself: case D12 of the conformance list.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/parallel/distributed_data_parallel.h"

#include "replica_checks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::error_of;
using testing::expect_same_on_all_ranks;

struct OwnHeadImpl : torch::nn::Module {
  explicit OwnHeadImpl(std::int64_t width) {
    fc1 = register_module("fc1", Linear(LinearOptions(1, 1).bias(false)));
    fc2 = register_module("fc2", Linear(LinearOptions(1, width).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm1d(1));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(1);
  }
  torch::Tensor forward(const torch::Tensor& input) { return fc2(fc1(input)); }
  Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(OwnHead);

TEST(Ignored, D12EachRankKeepsWhatIsIgnored) {
  run_ranks(2, [](ProcessGroup group) {
    OwnHead net(group.rank() + 1);
    net->norm->running_mean.fill_(group.rank());
    DistributedDataParallel model(net, group, Options().ignored({"fc2.weight", "norm.*"}));
    EXPECT_EQ(net->norm->running_mean.item<float>(), static_cast<float>(group.rank()));
    torch::optim::SGD optimizer({net->fc1->weight}, 0.01);
    for (int step = 0; step < 6; ++step) {
      net->zero_grad();
      model(constant({1, 1}, group.rank() + 1)).sum().backward();
      const float first = net->fc1->weight.item<float>();
      EXPECT_FLOAT_EQ(
          net->fc2->weight.grad().sum().item<float>(),
          first * static_cast<float>((group.rank() + 1) * (group.rank() + 1)))
          << "its own, not the average";
      EXPECT_EQ(net->fc1->weight.grad().item<float>(), (1 * 1 + 2 * 2) / 2.0f);
      optimizer.step();
    }
    expect_same_on_all_ranks(net->fc1->weight, group);
  });
}

TEST(Ignored, D12APatternThatFitsNothingIsAnError) {
  run_ranks(2, [](ProcessGroup group) {
    OwnHead net(1);
    EXPECT_THAT(
        error_of([&] { DistributedDataParallel(net, group, Options().ignored({"fc3.*"})); }),
        HasSubstr("to be ignored is fc3.*, but no parameter or buffer has such a name"));
  });
}

}  // namespace
}  // namespace lockstep
