// A step on each task, spread in every way, against one on the whole batch.

#include <gtest/gtest.h>
#include <memory>
#include <tuple>

#include "tests/support/message_of.h"
#include <ATen/ops/allclose.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/train/strategy/replica.h"
#include "lockstep/train/task/program.h"

namespace lockstep {
namespace {

constexpr double kStepRate = 0.1;

/// A target for a net of ten numbers.
struct Lesson {
  TaskKind task;
  data::TensorForm target;
  std::int64_t outputs = 3;
  const char* loss = "";
};

const std::vector<Lesson> kLessons = {
    {TaskKind::kRegression, {"target", {3}, torch::kFloat}, 3, "huber"},
    {TaskKind::kLabels, {"target", {3}, torch::kBool}},
    {TaskKind::kTokens, {"target", {}, torch::kLong}},
    {TaskKind::kReconstruction, {"target", {}, torch::kLong}, 10}};

// Of eight samples; of tokens most of the first half are ignored.
Batch lesson_batch(const Lesson& lesson) {
  torch::manual_seed(3);
  std::vector<std::int64_t> sizes = {8};
  sizes.insert(sizes.end(), lesson.target.sizes.begin(), lesson.target.sizes.end());
  const torch::Tensor numbers = at::rand(sizes);
  torch::Tensor target =
      lesson.target.type == torch::kFloat ? numbers : (numbers * 2).to(lesson.target.type);
  if (lesson.task == TaskKind::kTokens) target.slice(0, 0, 3).fill_(kIgnoredTarget);
  return {at::rand({8, 10}), target};
}

Batch share_of_batch(const Batch& batch, std::int64_t begin, std::int64_t end) {
  return batch.map([&](const torch::Tensor& tensor) { return tensor.slice(0, begin, end); });
}

/// The loss of a step, and the parameters after it, by name.
struct Step {
  double loss = 0;
  nn::NamedTensors state;
};

Step step_of(Replica& replica, const std::vector<std::pair<Batch, StepPart>>& parts) {
  Step step;
  replica.set_training(true);
  for (const auto& [batch, part] : parts)
    step.loss += part.share * replica.backward(batch, part, 0).item<double>();
  replica.update(kStepRate);
  for (const auto& item : replica.state())
    step.state.insert(item.key(), item.value().detach().clone());
  return step;
}

TrainOptions lesson_options(const Lesson& lesson, Parallel way) {
  TrainOptions options;
  options.model = "toy";
  options.parallel = way;
  options.batch_size = 8;
  options.task = lesson.task;
  options.loss = lesson.loss;
  options.optimizer = default_settings(OptimizerKind::kSgd);
  if (way == Parallel::kPp || way == Parallel::kMp) options.pipeline.balance = Balance::kCount;
  return options;
}

std::unique_ptr<Replica> lesson_replica(const Lesson& lesson, Parallel way,
    const ProcessGroup& world, Precision precision = Precision::k32) {
  TrainOptions options = lesson_options(lesson, way);
  options.precision = precision;
  const Layout layout = plan_layout_in(options, world.size(), world.backend_name() == "threads");
  const auto places = layout.places > 1 ? cpu_places(layout.places) : std::vector<Place>();
  const SampleForm form{
      .image = {10}, .outputs = lesson.outputs, .inputs = {}, .targets = {lesson.target}};
  return make_replica(options, layout, form, make_rank_groups(world, layout), places);
}

void expect_same(const Step& step, const Step& whole, const std::string& what) {
  EXPECT_NEAR(step.loss, whole.loss, 1e-6) << what;
  for (const auto& item : whole.state)
    EXPECT_TRUE(at::allclose(step.state[item.key()], item.value(), 1e-5, 1e-6))
        << what << ": " << item.key();
}

TEST(TaskStep, IsTheSameByThreadsAndStagesOfOneProcess) {
  for (const Lesson& lesson : kLessons) {
    const Batch batch = lesson_batch(lesson);
    const auto step_by = [&](Parallel way) {
      return step_of(*lesson_replica(lesson, way, ProcessGroup()), {{batch, StepPart()}});
    };
    const Step whole = step_by(Parallel::kSerial);
    for (const Parallel way : {Parallel::kDp, Parallel::kMp, Parallel::kPp})
      expect_same(step_by(way), whole, concat(name_of(lesson.task), " by ", name_of(way)));
  }
}

TEST(TaskStep, IsTheSameInPartsOfUnequalSizes) {
  for (const Lesson& lesson : kLessons) {
    const Batch batch = lesson_batch(lesson);
    const auto replica = [&] { return lesson_replica(lesson, Parallel::kSerial, ProcessGroup()); };
    const Step whole = step_of(*replica(), {{batch, StepPart()}});
    const Step parts = step_of(*replica(),
        {{share_of_batch(batch, 0, 3), {.share = 3.0 / 8, .number = 0, .is_last = false}},
            {share_of_batch(batch, 3, 8), {.share = 5.0 / 8, .number = 1, .is_last = true}}});
    expect_same(parts, whole, name_of(lesson.task));
  }
}

TEST(TaskStep, IsTheSameByRanks) {
  for (const Lesson& lesson : kLessons) {
    const Batch batch = lesson_batch(lesson);
    const Step whole =
        step_of(*lesson_replica(lesson, Parallel::kSerial, ProcessGroup()), {{batch, StepPart()}});
    std::vector<double> losses(2);
    run_ranks(2, [&](const ProcessGroup& world) {
      const std::int64_t begin = world.rank() * 4;
      const auto replica = lesson_replica(lesson, Parallel::kDdp, world);
      Step step = step_of(*replica, {{share_of_batch(batch, begin, begin + 4), StepPart()}});
      losses[static_cast<std::size_t>(world.rank())] = step.loss;
      step.loss = whole.loss;
      expect_same(step, whole, name_of(lesson.task));
    });
    EXPECT_NEAR((losses[0] + losses[1]) / 2, whole.loss, 1e-6) << name_of(lesson.task);
  }
}

TEST(TaskStep, ComparesWithInputsThatKeepTheirPrecision) {
  for (const Lesson& lesson : kLessons) {
    const auto replica =
        lesson_replica(lesson, Parallel::kSerial, ProcessGroup(), Precision::kBf16Mixed);
    const bool is_target = lesson.task == TaskKind::kReconstruction;
    EXPECT_EQ(replica->image_type(), is_target ? torch::kFloat : torch::kBFloat16)
        << name_of(lesson.task);
  }
}

TEST(TaskStep, RefusesANetWhoseOutputIsNotTheTargets) {
  Lesson lesson = kLessons.front();
  lesson.outputs = 4;
  const auto make = [&] { lesson_replica(lesson, Parallel::kSerial, ProcessGroup()); };
  EXPECT_EQ(testing::message_of<InvalidArgument>(make),
      "train: the model gives [2, 4] for a target [2, 3]; both must have the same shape");
}

// A net that computes its own loss, and how far it is off.
class MeasuringImpl final : public nn::CloneByArguments<MeasuringImpl, nn::ModelImpl> {
 public:
  MeasuringImpl() : net_(register_module("net", torch::nn::Linear(10, 3))) {}
  std::tuple<> arguments() const { return {}; }
  std::vector<std::size_t> takes() const override { return {2}; }
  std::optional<std::vector<std::string>> numbers() const override { return {{"off"}}; }

 private:
  torch::Tensor forward_all(std::vector<torch::Tensor> inputs) override {
    const torch::Tensor errors = net_->forward(inputs[0]) - inputs[1];
    const torch::Tensor loss = errors.square().mean(), off = errors.detach().abs().mean();
    return at::stack({at::full_like(loss, inputs[0].size(0)), loss, off}).unsqueeze(0);
  }

  torch::nn::Linear net_;
};

std::unique_ptr<Replica> measuring_replica(Parallel way, const ProcessGroup& world) {
  torch::manual_seed(1);
  const std::shared_ptr<nn::ModelImpl> model = std::make_shared<MeasuringImpl>();
  const PreparedModel prepared{.model = nn::Model(model),
      .task = std::make_shared<Program>(model->numbers().value()),
      .start = {}};
  const TrainOptions options = lesson_options({.task = TaskKind::kProgram, .target = {}}, way);
  const RankGroups groups{world, world, ProcessGroup()};
  return std::make_unique<ModuleReplica>(options, groups, prepared, cpu_places(3));
}

TEST(ProgramStep, ItsAccuracyIsTheScoreOfThatName) {
  const Program program({"accuracy", "off"});
  const torch::Tensor rows = torch::tensor({{3.0, 1.0, 0.5, 2.0}, {1.0, 5.0, 1.0, 6.0}});
  const Scores scores = program.evaluation(program.measure(rows, torch::zeros({4, 0}))).scores;
  EXPECT_EQ(scores, (Scores{.loss = 2, .top1 = 0.625, .more = {{"off", 3}}}));
  EXPECT_EQ(Program::metrics({"accuracy", "off"}),
      (std::vector<std::string>{"top1", "max:off", "min:off"}));
  EXPECT_THROW(Program({"accuracy5"}), InvalidArgument);
}

TEST(ProgramStep, IsTheSameByThreadsThatShareABatchUnequally) {
  const Batch batch = lesson_batch(kLessons.front());
  const auto serial = measuring_replica(Parallel::kSerial, ProcessGroup());
  const auto threads = measuring_replica(Parallel::kDp, ProcessGroup());
  EXPECT_EQ(threads->output(batch).size(0), 3) << "parts of 3, 3 and 2 samples";
  const auto scores = [&](Replica& replica) {
    return replica.task()
        ->evaluation(replica.task()->measure(replica.output(batch), replica.task()->target(batch)))
        .scores;
  };
  const Scores whole = scores(*serial), shared = scores(*threads);
  EXPECT_NEAR(shared.loss.value(), whole.loss.value(), 1e-6);
  EXPECT_NEAR(shared.more.at("off"), whole.more.at("off"), 1e-6);
  expect_same(step_of(*threads, {{batch, StepPart()}}), step_of(*serial, {{batch, StepPart()}}),
      "program by threads");
}

}  // namespace
}  // namespace lockstep
