// Gradients that a caller keeps, and passes after them: as with the module alone, they keep their
// values, and the parameter's gradient stays the tensor that it is.

#include <gtest/gtest.h>
#include <vector>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "three_layers.h"
#include <torch/nn/modules/container/sequential.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using testing::constant;
using testing::gradient_of;
using testing::scalar_layer;
using torch::nn::Linear;

constexpr int kPasses = 5;

// The average over two ranks is 10 times the pass and a half.
torch::Tensor input_of(int pass, const ProcessGroup& group) {
  return constant({1, 1}, 10 * pass + group.rank());
}
float average_of(int pass) { return 10.F * static_cast<float>(pass) + 0.5F; }

TEST(KeptGradients, KeepTheirValuesAfterZeroGrad) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    std::vector<torch::Tensor> kept;
    for (int pass = 0; pass < kPasses; ++pass) {
      net->zero_grad();
      model(input_of(pass, group)).sum().backward();
      kept.push_back(net->weight.grad());
      EXPECT_EQ(gradient_of(net), average_of(pass));
    }
    for (int pass = 0; pass < kPasses; ++pass)
      EXPECT_EQ(kept[static_cast<std::size_t>(pass)].item<float>(), average_of(pass)) << pass;
  });
}

TEST(KeptGradients, SoDoViewsOfThem) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    std::vector<torch::Tensor> views;
    for (int pass = 0; pass < kPasses; ++pass) {
      net->zero_grad();
      model(input_of(pass, group)).sum().backward();
      const torch::Tensor gradient = net->weight.grad();
      views.push_back(pass % 2 == 0 ? gradient.detach() : gradient.view(-1)[0]);
    }
    for (int pass = 0; pass < kPasses; ++pass)
      EXPECT_EQ(views[static_cast<std::size_t>(pass)].item<float>(), average_of(pass)) << pass;
  });
}

// Those of parameters that no pass used since then have zeros or nothing, and those of a rank that
// has ended are overwritten, but not what was kept of them.
TEST(KeptGradients, OfARankThatHasEndedToo) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    torch::Tensor kept;
    model.join([&] {
      for (int pass = 0; pass < 3 + 2 * group.rank(); ++pass) {
        net->zero_grad();
        model(input_of(pass, group)).sum().backward();
        if (pass == 2) kept = net->weight.grad();
      }
      net->zero_grad();
    });
    EXPECT_EQ(kept.item<float>(), average_of(2));
  });
}

TEST(KeptGradients, AreTheParametersWhileItHasThem) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      model(input_of(1, group)).sum().backward();
      const torch::Tensor first = net->weight.grad();
      model(input_of(2, group)).sum().backward();
      EXPECT_TRUE(first.is_same(net->weight.grad()));
      EXPECT_EQ(first.item<float>(), average_of(1) + average_of(2));
    }
  });
}

TEST(KeptGradients, OfLocalPassesBecomeTheAverage) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      torch::Tensor local;
      {
        const auto accumulate = model.no_sync();
        model(input_of(1, group)).sum().backward();
        local = net->weight.grad();
      }
      model(input_of(2, group)).sum().backward();
      EXPECT_TRUE(local.is_same(net->weight.grad()));
      EXPECT_EQ(local.item<float>(), average_of(1) + average_of(2));
    }
  });
}

// What nobody keeps costs nothing: the places stay where they are once the buckets are rebuilt.
TEST(KeptGradients, MoveOutOfPlacesThatStay) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(scalar_layer(), scalar_layer());
    DistributedDataParallel model(net, group);
    std::vector<void*> seen;
    std::vector<torch::Tensor> kept;
    for (int pass = 0; pass < 6; ++pass) {
      net->zero_grad();
      model(input_of(pass, group)).sum().backward();
      seen.push_back(net->parameters()[0].grad().data_ptr());
      if (pass == 3) kept.push_back(net->parameters()[1].grad());
    }
    for (std::size_t pass = 2; pass < seen.size(); ++pass) EXPECT_EQ(seen[pass], seen[1]);
  });
}

}  // namespace
}  // namespace lockstep
