// What an optimizer step of a rank does with its parts and its learning rate.

#include <gtest/gtest.h>

#include "lockstep/train/strategy/replica.h"

#include "tests/train/random_batch.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSamples = 12;

std::unique_ptr<Replica> toy_replica() {
  TrainOptions options;
  options.model = "toy";
  options.optimizer = default_settings(OptimizerKind::kSgd);
  options.optimizer.momentum = 0;
  const ProcessGroup alone;
  const Layout layout = plan_layout(options, 1);
  auto replica = make_replica(
      options, layout, {.image = {10}, .classes = 5}, make_rank_groups(alone, layout), {});
  replica->set_training(true);
  return replica;
}

Batch part_of(const Batch& batch, std::int64_t first, std::int64_t end) {
  return {batch.data.slice(0, first, end), batch.target.slice(0, first, end)};
}

std::vector<torch::Tensor> gradients_of(const Replica& replica) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : replica.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& expected) {
  EXPECT_TRUE(at::allclose(actual, expected, 1e-6, 1e-7));
}

TEST(ReplicaUpdate, UsesTheRateOfItsStep) {
  const auto replica = toy_replica();
  for (const double rate : {0.5, 0.03}) {
    std::vector<torch::Tensor> before;
    for (const auto& parameter : replica->parameters())
      before.push_back(parameter.detach().clone());
    replica->backward(testing::random_batch({kSamples, 10}), {});
    const auto gradients = gradients_of(*replica);
    replica->update(rate);
    const auto after = replica->parameters();
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_GT(gradients[i].abs().max().item<double>(), 1e-3);
      expect_close(after[i].detach(), before[i] - rate * gradients[i]);
    }
  }
}

TEST(ReplicaUpdate, PartsOfAStepAddUpToTheWhole) {
  const Batch batch = testing::random_batch({kSamples, 10});
  const auto whole = toy_replica(), parts = toy_replica();
  const torch::Tensor loss_of_rest = whole->backward(part_of(batch, 7, kSamples), {});
  whole->backward(batch, {});
  for (int step = 0; step < 2; ++step) {  // the second step forgets the first
    parts->backward(part_of(batch, 0, 7), {7.0 / kSamples, true, false});
    const torch::Tensor loss =
        parts->backward(part_of(batch, 7, kSamples), {5.0 / kSamples, false, true});
    expect_close(loss, loss_of_rest);
  }
  const auto expected = gradients_of(*whole), actual = gradients_of(*parts);
  for (std::size_t i = 0; i < expected.size(); ++i) expect_close(actual[i], expected[i]);
}

}  // namespace
}  // namespace lockstep
