// A property: whatever the module, the batch, the number of ranks and the options, data-parallel
// training equals one process on the whole batch.

#include <gtest/gtest.h>
#include <random>
#include <string>

#include "tests/comm/group_factory.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

// Emulated streams and a thread of their own take ten times as long.
const int kCases = testing::on_devices() ? 200 : 500;
constexpr int kSteps = 3;

/// Draws whole numbers; the same sequence everywhere for a seed.
class Draw {
 public:
  explicit Draw(int seed) : engine_(static_cast<unsigned>(seed)) {}
  /// Returns a number of first .. last.
  std::int64_t operator()(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(engine_() % static_cast<unsigned>(last - first + 1));
  }

 private:
  std::mt19937 engine_;
};

/// A sequence of layers, its values by formula.
torch::nn::Sequential random_net(Draw draw) {
  torch::nn::Sequential net;
  std::int64_t width = 4;
  for (std::int64_t layer = draw(1, 5); layer > 0; --layer) {
    const std::int64_t next = draw(1, 12);
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(width, next).bias(draw(0, 3) != 0)));
    width = next;
    const std::int64_t kind = draw(0, 4);
    if (kind == 0) net->push_back(torch::nn::ReLU());
    if (kind == 1) net->push_back(torch::nn::Tanh());
    if (kind == 2) net->push_back(torch::nn::Sigmoid());
    if (kind == 3) net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  net->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    const torch::Tensor steps = torch::arange(parameter.numel(), torch::kDouble);
    parameter.copy_(torch::sin(steps * 1.7 + parameter.numel()).view(parameter.sizes()));
  }
  return net;
}

/// A case of the property.
struct Case {
  explicit Case(int seed) : draw(seed) {
    ranks = static_cast<int>(draw(1, 4));
    samples = draw(1, 5);
    micro_batches = draw(1, 3);
    options.bucket_bytes(std::int64_t{1} << draw(0, 12))
        .first_bucket_bytes(std::int64_t{1} << draw(0, 12))
        .find_unused_parameters(draw(0, 2) == 0)
        .static_graph(draw(0, 2) == 0);
    if (draw(0, 2) == 0) options.comm_hook(all_reduce_hook);
    after_passes = draw(0, 2) == 0;
  }

  Draw draw;
  int ranks;
  std::int64_t samples;  // of a rank in a micro-batch
  std::int64_t micro_batches;
  DistributedDataParallelOptions options;
  bool after_passes;  // averaged by reduce_accumulated instead of by the last backward
};

// Micro-batch m of step s: all ranks' samples, or one rank's.
torch::Tensor inputs(const Case& drawn, int step, std::int64_t micro, int rank, int ranks) {
  const std::int64_t rows = drawn.samples * drawn.ranks;
  const torch::Tensor count = torch::arange(rows * 4, torch::kDouble).view({rows, 4});
  const torch::Tensor all = torch::cos(count * 0.9 + step + 10 * micro);
  return all.narrow(0, rank * (rows / ranks), rows / ranks);
}

template <typename Pass>
std::vector<torch::Tensor> trained_parameters(
    const Case& drawn, torch::nn::Module& net, Pass pass) {
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (std::int64_t micro = 0; micro < drawn.micro_batches; ++micro) pass(step, micro);
    optimizer.step();
  }
  return net.parameters();
}

std::vector<torch::Tensor> serial(const Case& drawn) {
  auto net = random_net(drawn.draw);
  return trained_parameters(drawn, *net, [&](int step, std::int64_t micro) {
    net->forward(inputs(drawn, step, micro, 0, 1)).pow(2).mean().backward();
  });
}

std::vector<torch::Tensor> parallel(const Case& drawn, const ProcessGroup& group) {
  auto net = random_net(drawn.draw);
  DistributedDataParallel model(net, group, drawn.options);
  return trained_parameters(drawn, *net, [&](int step, std::int64_t micro) {
    const bool is_last = micro + 1 == drawn.micro_batches;
    const auto backward = [&] {
      model(inputs(drawn, step, micro, group.rank(), group.size())).pow(2).mean().backward();
    };
    if (is_last && !drawn.after_passes) return backward();
    {
      auto accumulate = model.no_sync();
      backward();
    }
    if (is_last) model.reduce_accumulated();
  });
}

TEST(RandomModules, DataParallelTrainingEqualsOneProcess) {
  for (int seed = 0; seed < kCases; ++seed) {
    const Case drawn(seed);
    const auto expected = serial(drawn);
    testing::run_ranks(drawn.ranks, [&](ProcessGroup group) {
      const auto parameters = parallel(drawn, group);
      ASSERT_EQ(parameters.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(torch::allclose(parameters[i].cpu(), expected[i].cpu(), 1e-10, 1e-12))
            << "seed " << seed << ", parameter " << i << " on rank " << group.rank() << " of "
            << group.size();
      }
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep
