// Layers: unmodified ones within a scope, and our own. The cases Y2 and Y5.

#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "tests/comm/group_factory.h"
#include "tests/support/places.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

/// A block that holds its layers by type, as users write them.
class BlockImpl : public torch::nn::Cloneable<BlockImpl> {
 public:
  BlockImpl() { reset(); }
  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(3));
  }
  Tensor forward(const Tensor& input) { return norm(conv(input)).relu(); }
  torch::nn::Conv2d conv = nullptr;
  torch::nn::BatchNorm2d norm = nullptr;
};
TORCH_MODULE(Block);

torch::nn::Sequential nested() {
  torch::manual_seed(3);
  torch::nn::Sequential net(Block(), torch::nn::BatchNorm2d(3));
  net->to(torch::kDouble);
  return net;
}

void expect_same_buffers(const torch::nn::Module& actual, const torch::nn::Module& expected) {
  const auto buffers = expected.named_buffers();
  for (const auto& item : actual.named_buffers()) {
    const Tensor there = testing::here(buffers[item.key()]);
    EXPECT_TRUE(item.value().allclose(there, 1e-10, 1e-10)) << item.key();
  }
}

TEST(SyncBatchNormScope, ReachesNestedLayersAndPassesASubGroupOnY5) {
  std::vector<torch::nn::Sequential> nets, wholes;
  for (int i = 0; i < 4; ++i) nets.push_back(nested());
  for (int i = 0; i < 2; ++i) wholes.push_back(nested());
  const auto inputs = at::randn({8, 2, 3, 3}, torch::kDouble);
  const auto halves = inputs.chunk(2);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < 2; ++i) outputs.push_back(wholes[i]->forward(halves[i]));

  testing::run_ranks(4, [&](ProcessGroup world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto pair = world.split(world.rank() / 2, world.rank());
    const SyncBatchNormScope scope(pair);
    testing::bring_here(*nets[rank]);
    const auto output = nets[rank]->forward(testing::here(inputs.chunk(4)[rank]));
    const auto expected = testing::here(outputs[rank / 2].chunk(2)[rank % 2]);
    EXPECT_TRUE(output.allclose(expected, 1e-10, 1e-10));
    expect_same_buffers(*nets[rank], *wholes[rank / 2]);
  });
}

// LibTorch computes an instance norm by a batch norm of all samples' channels.
TEST(SyncBatchNormScope, LeavesInstanceNormToEachSample) {
  torch::nn::InstanceNorm2d whole(2);
  const auto inputs = at::randn({6, 2, 3, 3}, torch::kDouble).set_requires_grad(true);
  const auto weights = at::randn({6, 2, 3, 3}, torch::kDouble);
  const auto outputs = whole(inputs);
  (outputs * weights).sum().backward();
  testing::run_ranks(2, [&](ProcessGroup world) {
    const std::int64_t first = 3 * world.rank(), end = first + 3;
    const auto part = [&](const Tensor& tensor) {
      return testing::here(tensor.detach().slice(0, first, end));
    };
    const auto input = part(inputs).clone().set_requires_grad(true);
    torch::nn::InstanceNorm2d norm(2);
    const SyncBatchNormScope scope(world);
    const auto output = norm(input);
    (output * part(weights)).sum().backward();
    EXPECT_TRUE(output.allclose(part(outputs), 1e-10, 1e-10));
    EXPECT_TRUE(input.grad().allclose(part(inputs.grad()), 1e-10, 1e-10));
  });
}

TEST(SyncBatchNormScope, EndsWithItsScope) {
  testing::run_ranks(2, [](ProcessGroup world) {
    torch::nn::BatchNorm1d net(2), alone(2);
    const auto input = at::full({4, 2}, 1.0 * world.rank()) + at::arange(4.0).view({4, 1});
    { const SyncBatchNormScope scope(world); }
    EXPECT_TRUE(net->forward(input).equal(alone->forward(input)));
    EXPECT_TRUE(net->running_mean.equal(alone->running_mean));
  });
}

TEST(SyncBatchNormScope, EvaluatesOnOneRankWithoutACollectiveY5) {
  auto net = nested();
  net->eval();
  const auto input = at::randn({4, 2, 3, 3}, torch::kDouble);
  const auto expected = net->forward(input);
  testing::run_ranks(2, [&](ProcessGroup world) {
    if (world.rank() != 0) return;
    const SyncBatchNormScope scope(world);
    EXPECT_TRUE(net->forward(input).equal(expected));
  });
}

TEST(SyncBatchNormLayer, TakesOneSampleARankY2) {
  const auto inputs = at::randn({2, 2}, torch::kDouble);
  torch::nn::BatchNorm1d whole(2);
  whole->to(torch::kDouble);
  const auto expected = whole->forward(inputs);
  testing::run_ranks(2, [&](ProcessGroup world) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(2), world);
    norm->to(torch::kDouble);
    const auto output = norm(testing::here(inputs.narrow(0, world.rank(), 1)));
    EXPECT_TRUE(output.cpu().allclose(expected.narrow(0, world.rank(), 1).cpu(), 1e-10, 1e-10));
    expect_same_buffers(*norm, *whole);
  });
}

TEST(SyncBatchNormLayer, AveragesAllBatchesAlikeWithoutAMomentum) {
  const auto options = torch::nn::BatchNormOptions(2).momentum(std::nullopt);
  torch::nn::BatchNorm1d plain(options);
  SyncBatchNorm norm(options, ProcessGroup());
  for (int step = 0; step < 3; ++step) {
    const auto input = at::randn({5, 2}) * (step + 1);
    EXPECT_TRUE(norm(input).allclose(plain(input), 1e-5, 1e-5));
  }
  EXPECT_TRUE(norm->running_var.allclose(plain->running_var, 1e-5, 1e-5));
  norm->eval();
  plain->eval();
  const auto input = at::randn({1, 2});
  EXPECT_TRUE(norm(input).allclose(plain(input), 1e-5, 1e-5));
}

TEST(SyncBatchNormLayer, CanBeClonedWithItsGroup) {
  SyncBatchNorm norm(torch::nn::BatchNormOptions(2), ProcessGroup());
  norm->running_mean.fill_(3);
  const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
  EXPECT_TRUE(copy->running_mean.equal(norm->running_mean));
  EXPECT_EQ(copy->forward(at::randn({4, 2})).size(0), 4);
}

TEST(SyncBatchNormLayer, NamesAWrongNumberOfChannels) {
  SyncBatchNorm norm(torch::nn::BatchNormOptions(2), ProcessGroup());
  EXPECT_THAT(
      [&] {
        norm(at::randn({4, 3}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected an input [N, 2, ...], got [4, 3]")));
}

}  // namespace
}  // namespace lockstep
