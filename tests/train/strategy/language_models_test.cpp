// Language models by every way of spreading give the losses, weights and averages of one process:
// each step accumulates two batches and is clipped.

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <torch/csrc/autograd/function.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/ema.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/models/language/token_loss.h"
#include "lockstep/train/strategy/recomputed_model.h"
#include "lockstep/train/strategy/replica.h"
#include "lockstep/train/task/class_of_each.h"

namespace lockstep {
namespace {

using torch::Tensor;

constexpr std::int64_t kWords = 37, kLength = 8, kBatch = 8;
constexpr int kPartsOfStep = 2;

struct LanguageWay {
  const char* name;
  Parallel parallel = Parallel::kSerial;
  int ranks = 1;
  std::vector<int> balance = {};  // of the layers behind those of the first stage
  ScheduleKind schedule = ScheduleKind::k1F1B;
  Checkpoint checkpoint = Checkpoint::kNever;
  std::string checkpoint_layers = {};
  bool defers_scores = true, has_whole_scores = false;
  Reshard reshard = Reshard::kAfterForward;
  int steps = 4;
  torch::ScalarType type = torch::kDouble;
};

std::ostream& operator<<(std::ostream& out, const LanguageWay& way) { return out << way.name; }

const LanguageWay kOneProcess{.name = "serial", .defers_scores = false};
const std::vector<LanguageWay> kLanguageWays{{.name = "in_chunks"},
    {.name = "recomputed", .checkpoint = Checkpoint::kAlways, .defers_scores = false},
    {.name = "blocks_recomputed",
        .checkpoint = Checkpoint::kAlways,
        .checkpoint_layers = "*.*.[0-9]"},
    {.name = "ddp", .parallel = Parallel::kDdp, .ranks = 2},
    {.name = "fsdp", .parallel = Parallel::kFsdp, .ranks = 2, .steps = 20},
    {.name = "fsdp_of_four_recomputed",
        .parallel = Parallel::kFsdp,
        .ranks = 4,
        .checkpoint = Checkpoint::kAlways,
        .steps = 20},
    {.name = "fsdp_of_eight_kept",
        .parallel = Parallel::kFsdp,
        .ranks = 8,
        .reshard = Reshard::kNever,
        .steps = 20},
    {.name = "dp", .parallel = Parallel::kDp, .defers_scores = false},
    {.name = "mp", .parallel = Parallel::kMp, .balance = {3}},
    {.name = "pp", .parallel = Parallel::kPp, .balance = {2}},
    {.name = "pp_of_the_head_alone", .parallel = Parallel::kPp, .balance = {1}},
    {.name = "zero_bubble",
        .parallel = Parallel::kPp,
        .balance = {2},
        .schedule = ScheduleKind::kZeroBubble},
    {.name = "interleaved",
        .parallel = Parallel::kPp,
        .balance = {2, 2, 1},
        .schedule = ScheduleKind::kInterleaved},
    {.name = "pp_over_ranks", .parallel = Parallel::kPp, .ranks = 2, .balance = {3}},
    {.name = "pp_recomputed",
        .parallel = Parallel::kPp,
        .ranks = 2,
        .balance = {3},
        .checkpoint = Checkpoint::kAlways,
        .has_whole_scores = true}};  // where it computes the loss first

struct Outcome {
  std::vector<double> losses;  // of the steps, then of an evaluation
  nn::NamedTensors weights{"Tensor"}, averages{"Tensor"};
};

Batch batch_of(int number, const ProcessGroup& replicas) {
  const Tensor numbers = at::arange(kBatch * (kLength + 1), torch::kLong) * (7 + number);
  const Tensor all = numbers.remainder(kWords).view({kBatch, kLength + 1});
  const Tensor own = all.chunk(replicas.size())[static_cast<std::size_t>(replicas.rank())];
  return {own.slice(1, 0, kLength), own.slice(1, 1)};
}

TrainOptions options_of(const LanguageWay& way, const std::string& model) {
  TrainOptions options;
  options.model = model;
  options.parallel = way.parallel;
  options.pipeline.chunks = 2;
  options.pipeline.schedule = way.schedule;
  options.pipeline.checkpoint = way.checkpoint;
  options.gradients.reshard = way.reshard;
  options.pipeline.checkpoint_layers = way.checkpoint_layers;
  // Where a gradient is nothing but rounding, AdamW in float makes a step of its sign.
  options.optimizer =
      default_settings(way.type == torch::kDouble ? OptimizerKind::kAdamW : OptimizerKind::kSgd);
  options.optimizer.lr = 0.01;
  options.optimizer.clip_grad = 0.5;
  options.optimizer.weight_decay = 0.1;
  options.optimizer.weight_decay_on = DecayOn::kWeights;
  return options;
}

// By formula: ranks are threads, and would draw from one generator.
nn::Model model_of(const std::string& name, torch::ScalarType type = torch::kDouble) {
  nn::Model model = nn::make_model(name, kWords);
  model->to(type);
  const torch::NoGradGuard no_gradients;
  double place = 0;
  for (Tensor& parameter : model->parameters()) {
    const Tensor numbers = at::arange(parameter.numel(), torch::kDouble);
    parameter.copy_(at::sin(numbers * numbers * 0.37 + place++).view(parameter.sizes()) * 0.2);
  }
  return model;
}

/// Tokens whose scores are never whole in training.
class TokensInChunks final : public Tokens {
 public:
  using Tokens::Tokens;
  Tensor loss(const Tensor& output, const Tensor& target) const override {
    EXPECT_LT(output.numel(), kWords);
    return Tokens::loss(output, target);
  }
};

// In one process the loss is that of scores.
TaskPointer task_of(const LanguageWay& way) {
  const bool is_expected = way.name == kOneProcess.name;
  if (way.defers_scores && !way.has_whole_scores)
    return std::make_shared<TokensInChunks>(0, /*are_bytes=*/false, /*gives_losses=*/true);
  return std::make_shared<Tokens>(0, /*are_bytes=*/false, /*gives_losses=*/!is_expected);
}

// Of one token nobody asks.
double evaluated(Replica& replica, const ProcessGroup& replicas) {
  const torch::NoGradGuard no_gradients;
  Batch batch = batch_of(1000, replicas);  // another than those of all steps
  Tensor& next = batch.targets.front().tensor;
  next = next.clone();  // it is the input's, too
  if (replicas.rank() == 0) next[0][3] = kIgnoredTarget;
  replica.set_training(false);
  FindingsSum findings;
  const Task& task = *replica.task();
  findings.add(task.measure(replica.output(batch), task.target(batch)));
  return *task.evaluation(findings.over_all(replicas)).scores.loss;
}

std::unique_ptr<Replica> replica_of(
    const LanguageWay& way, const std::string& name, const ProcessGroup& world) {
  const TrainOptions options = options_of(way, name);
  nn::Model model = model_of(name, way.type);
  if (way.defers_scores) nn::defer_scores(*model);
  PreparedModel prepared{.model = model, .task = task_of(way), .start = {}};
  int behind = 0;
  for (const int layers : way.balance) behind += layers;
  if (behind > 0) prepared.balance = {static_cast<int>(model->layers().size()) - behind};
  prepared.balance.insert(prepared.balance.end(), way.balance.begin(), way.balance.end());
  const bool over_ranks = behind > 0 && way.ranks > 1;
  const Layout layout{.stages = static_cast<int>(prepared.balance.size()),
      .workers = way.ranks,
      .stages_over_ranks = over_ranks};
  const RankGroups groups = make_rank_groups(world, layout);
  if (over_ranks) return std::make_unique<StageReplica>(options, groups, prepared, torch::kCPU);
  if (behind > 0)
    return std::make_unique<PipelineReplica>(
        options, groups, prepared, cpu_places(std::min(2, layout.stages)));
  if (way.parallel == Parallel::kFsdp)
    return std::make_unique<ShardedReplica>(options, groups, prepared, torch::kCPU);
  return std::make_unique<ModuleReplica>(options, groups, prepared, cpu_places(2));
}

// Puts what a rank has of a model with what others have, whole.
void add_own(const nn::NamedTensors& own, const TensorRanges& ranges, nn::NamedTensors& all) {
  for (const auto& item : own) {
    const auto shared = ranges.find(item.key());
    const bool is_part = shared != ranges.end();
    if (!all.contains(item.key()))
      all.insert(item.key(), is_part
                                 ? at::full(shared->second.whole, NAN, item.value().scalar_type())
                                 : item.value().detach().clone());
    if (!is_part) continue;
    const TensorRange& range = shared->second;
    all[item.key()].view({-1}).slice(0, range.begin, range.end).copy_(item.value().flatten());
  }
}

double loss_of_step(Replica& replica, const ProcessGroup& replicas, int step) {
  Tensor loss = at::zeros({1}, torch::kDouble);
  for (int part = 0; part < kPartsOfStep; ++part) {
    const StepPart now{
        .share = 1.0 / kPartsOfStep, .number = part, .is_last = part + 1 == kPartsOfStep};
    loss += replica.backward(batch_of(kPartsOfStep * step + part, replicas), now, step) * now.share;
  }
  replicas.all_reduce(loss, ReduceOp::kMean).wait();
  return loss.item<double>();
}

Outcome trained(const LanguageWay& way, const std::string& model) {
  Outcome all;
  run_ranks(way.ranks, [&](const ProcessGroup& world) {
    const auto replica = replica_of(way, model, world);
    replica->set_training(true);
    const ProcessGroup replicas = way.balance.empty() ? world : ProcessGroup();
    ModelEma averages(replica->state().values(), {.decay = 0.9});
    std::vector<double> losses;
    for (int step = 0; step < way.steps; ++step) {
      losses.push_back(loss_of_step(*replica, replicas, step));
      replica->update(0.01);
      averages.update();
    }
    losses.push_back(evaluated(*replica, replicas));
    for (int rank = 0; rank < world.size(); ++rank) {
      world.barrier().wait();
      if (rank != world.rank()) continue;
      const nn::NamedTensors own = replica->state();
      all.losses = losses;
      add_own(own, replica->ranges(), all.weights);
      add_own(named_averages(averages, own), replica->ranges(), all.averages);
    }
    world.barrier().wait();
  });
  return all;
}

void expect_near(const nn::NamedTensors& found, const nn::NamedTensors& expected,
    const std::string& what, double allowed) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& item : expected) {
    const Tensor difference = found[item.key()] - item.value();
    EXPECT_LT(difference.abs().max().item<double>(), allowed) << what << " " << item.key();
  }
}

void expect_near(
    const Outcome& found, const Outcome& expected, const std::string& model, double allowed) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(found.losses[step], expected.losses[step], allowed) << model << " " << step;
  expect_near(found.weights, expected.weights, model, allowed);
  expect_near(found.averages, expected.averages, model + ", averages", allowed);
}

class LanguageModelWays : public ::testing::TestWithParam<LanguageWay> {};

TEST_P(LanguageModelWays, EqualOneProcess) {
  LanguageWay alone = kOneProcess;
  alone.steps = GetParam().steps;
  for (const std::string model : {"gpt2-nano", "llama-260k"})
    expect_near(trained(GetParam(), model), trained(alone, model), model, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Ways, LanguageModelWays, ::testing::ValuesIn(kLanguageWays),
    [](const auto& test) { return std::string(test.param.name); });

// How many nodes of a graph have this in their name.
std::size_t nodes_named(const Tensor& output, const std::string& name) {
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> left{output.grad_fn().get()};
  std::size_t found = 0;
  while (!left.empty()) {
    auto* const node = left.back();
    left.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (node->name().find(name) != std::string::npos) ++found;
    for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  return found;
}

TEST(LanguageModelKernels, TrainAsLibTorchs) {
  const std::set<std::string> names{"in_chunks", "recomputed", "fsdp"};
  for (const std::string model : {"gpt2-nano", "llama-260k"}) {
    LanguageWay alone = kOneProcess;
    alone.type = torch::kFloat;
    const Outcome expected = trained(alone, model);
    const nn::KernelScope scope(nn::Kernels::kOwn);
    for (LanguageWay way : kLanguageWays) {
      if (!names.contains(way.name)) continue;
      way.type = torch::kFloat;
      way.steps = alone.steps;
      SCOPED_TRACE(way.name);
      expect_near(trained(way, model), expected, model, 1e-4);
    }
  }
}

TEST(LanguageModelKernels, AreNodesOfTheGraph) {
  const Tensor tokens = batch_of(0, ProcessGroup()).input();
  const auto has = [&](const std::string& model, const std::string& node) {
    return nodes_named(model_of(model, torch::kFloat)(tokens), node) > 0;
  };
  const nn::KernelScope scope(nn::Kernels::kOwn);
  for (const char* const node : {"OwnAttention", "OwnLinear"})
    EXPECT_TRUE(has("gpt2-nano", node) && has("llama-260k", node)) << node;
  for (const char* const node : {"OwnRmsNorm", "OwnSwiglu", "OwnRotary"})
    EXPECT_TRUE(has("llama-260k", node)) << node;
}

TEST(RecomputedModel, ComputesLayersOfThePatternAgain) {
  const nn::Model net = nn::make_model("gpt2-nano", kWords);
  const auto of = [&](const std::string& pattern) {
    RecomputedModel model(net, "gpt2-nano", pattern);
    return nodes_named(model.forward({batch_of(0, ProcessGroup()).input()}), "Checkpointed");
  };
  EXPECT_EQ(of("transformer.h.*"), 4U);
  EXPECT_EQ(of("*.2"), 1U);
  EXPECT_GT(of(""), 6U) << "of embeddings, norm and head, too";
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { of("h.*"); }),
      ::testing::HasSubstr("--checkpoint h.* is neither never, except-last or always, nor matches "
                           "a layer of gpt2-nano: input, transformer.wte, transformer.wpe, "));
}

}  // namespace
}  // namespace lockstep
