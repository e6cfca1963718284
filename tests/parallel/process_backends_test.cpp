// DistributedDataParallel over real processes: hooks, sparse gradients and uneven inputs make other
// collectives than the plain reducer, and each backend must carry them.

#include <gtest/gtest.h>

#include "../comm/group_factory.h"
#include "replica_checks.h"
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using testing::constant;
using testing::expect_same_on_all_ranks;
using testing::run_group;
using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;
using torch::nn::LinearOptions;

class ProcessBackends : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, ProcessBackends, ::testing::Values("shm", "gloo", "hosts_0010"),
    [](const ::testing::TestParamInfo<const char*>& backend) {
      return std::string(backend.param);
    });

void expect_average_with(const CommHook& hook, const ProcessGroup& group) {
  Linear net(LinearOptions(30, 20).bias(true));
  DistributedDataParallel model(net, group,
      DistributedDataParallelOptions().comm_hook(hook).first_bucket_bytes(1).bucket_bytes(1));
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    model(constant({1, 30}, group.rank() + step)).sum().backward();
    EXPECT_TRUE(torch::allclose(net->weight.grad(), constant({20, 30}, 1 + step), 1e-3, 1e-4));
    expect_same_on_all_ranks(net->weight.grad(), group);
  }
}

TEST_P(ProcessBackends, J6HooksAverage) {
  run_group(GetParam(), 3, [](ProcessGroup group) {
    expect_average_with(nullptr, group);
    expect_average_with(fp16_compress_hook, group);
    expect_average_with(PowerSgd(PowerSgdOptions().start_step(0)), group);
  });
}

// A resumed run begins with the first buckets again, and must have the same bits.
TEST_P(ProcessBackends, KeepsItsFirstBucketsWhereSumsDependOnThePlace) {
  run_group(GetParam(), 3, [backend = std::string(GetParam())](ProcessGroup group) {
    EXPECT_EQ(group.sums_in_rank_order(), backend != "gloo");
    Linear net(LinearOptions(30, 20).bias(true));
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 3; ++step) model(constant({1, 30}, 1)).sum().backward();
    EXPECT_EQ(model.report().rebuilt, backend != "gloo");
  });
}

TEST_P(ProcessBackends, D13SparseGradientsAreTheAverage) {
  run_group(GetParam(), 3, [](ProcessGroup group) {
    Embedding net(EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      // Rank r looks r + 1 words up: 0 .. r.
      model(torch::arange(group.rank() + 1, torch::kLong)).sum().backward();
      const torch::Tensor gradient = net->weight.grad().to_dense().select(1, 0);
      const torch::Tensor expected = torch::tensor({3.0, 2.0, 1.0, 0.0}, torch::kFloat) / 3;
      EXPECT_TRUE(torch::allclose(gradient, expected)) << gradient;
    }
  });
}

TEST_P(ProcessBackends, J2RanksMayEndEarly) {
  run_group(GetParam(), 3, [](ProcessGroup group) {
    Linear net(LinearOptions(1, 1).bias(false));
    DistributedDataParallel model(net, group);
    model.join([&] {
      for (int step = 0; step <= group.rank(); ++step) {
        net->zero_grad();
        model(constant({1, 1}, 3)).sum().backward();
        EXPECT_FLOAT_EQ(net->weight.grad().item<float>(), static_cast<float>(3 - step));
      }
    });
    expect_same_on_all_ranks(net->weight, group);
  });
}

}  // namespace
}  // namespace lockstep
