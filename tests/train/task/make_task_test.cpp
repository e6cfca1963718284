#include "lockstep/train/task/make_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/train/task/class_of_each.h"
#include "lockstep/train/task/classification.h"
#include "lockstep/train/task/element_task.h"
#include "lockstep/train/task/labels.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

using Targets = std::vector<data::TensorForm>;

// A set of which only the forms matter.
class Formed final : public data::Samples {
 public:
  explicit Formed(Targets targets, std::int64_t classes = 0)
      : targets_(std::move(targets)), classes_(classes) {}
  std::int64_t size() const override { return 8; }
  std::int64_t classes() const override { return classes_; }
  data::ImageShape shape() const override { return {.channels = 1, .height = 1, .width = 10}; }
  std::vector<data::TensorForm> targets() const override { return targets_; }
  std::string name(std::int64_t /*index*/) const override { return ""; }
  void read(std::span<const data::SampleKey> /*keys*/, const Batch& /*out*/) const override {}

 private:
  Targets targets_;
  std::int64_t classes_;
};

const data::TensorForm kTokens{"next", {64}, torch::kLong};
const data::TensorForm kMask{"mask", {4, 6}, torch::kByte};
const data::TensorForm kPrice{"price", {3}, torch::kFloat};
const data::TensorForm kTags{"tags", {5}, torch::kBool};

TEST(TaskKindOf, FollowsFromTheTargets) {
  const auto kind = [](const Targets& targets) { return task_kind({}, targets); };
  EXPECT_EQ(kind({data::kClassTarget}), TaskKind::kClassification);
  EXPECT_EQ(kind({kTokens}), TaskKind::kTokens);
  EXPECT_EQ(kind({kMask}), TaskKind::kSegmentation);
  EXPECT_EQ(kind({kPrice}), TaskKind::kRegression);
  EXPECT_EQ(kind({kTags}), TaskKind::kLabels);
  EXPECT_EQ(kind({}), TaskKind::kReconstruction);
}

TEST(UsualWords, AreForgottenSoThatAResumeMaySayThem) {
  const auto meant = [](TrainOptions options, const Targets& targets) {
    forget_usual_words(options, targets);
    return std::pair(options.task, options.loss);
  };
  using Words = std::pair<std::optional<TaskKind>, std::string>;
  EXPECT_EQ(meant({.task = TaskKind::kTokens, .loss = "cross-entropy"}, {kTokens}), Words());
  EXPECT_EQ(meant({.task = TaskKind::kReconstruction, .loss = "mse"}, {}), Words());
  EXPECT_EQ(
      meant({.task = TaskKind::kReconstruction}, {kPrice}), Words(TaskKind::kReconstruction, ""));
  EXPECT_EQ(meant({.task = TaskKind::kProgram}, {kPrice, kTokens}), Words(TaskKind::kProgram, ""));
  EXPECT_EQ(meant({.task = TaskKind::kRegression, .loss = "l1"}, {kPrice}), Words({}, "l1"));
}

TEST(TaskKindOf, IsTheOneThatWasAskedForWhereItFits) {
  const auto kind = [](TaskKind asked, const Targets& targets) {
    return task_kind({.task = asked}, targets);
  };
  EXPECT_EQ(kind(TaskKind::kRegression, {data::kClassTarget}), TaskKind::kRegression);
  EXPECT_EQ(kind(TaskKind::kTokens, {data::kClassTarget}), TaskKind::kTokens);
  EXPECT_EQ(kind(TaskKind::kLabels, {kPrice}), TaskKind::kLabels);
  EXPECT_EQ(kind(TaskKind::kReconstruction, {data::kClassTarget}), TaskKind::kReconstruction);
  EXPECT_EQ(kind(TaskKind::kProgram, {kPrice, kTags}), TaskKind::kProgram);
  EXPECT_EQ(message_of<InvalidArgument>([&] { kind(TaskKind::kTokens, {kPrice}); }),
      "train: --task tokens is not for the target of fashion-mnist, price [3] float; that may be "
      "of "
      "regression");
  for (const TaskKind asked : {TaskKind::kClassification, TaskKind::kSegmentation})
    EXPECT_THROW(kind(asked, {kPrice}), InvalidArgument) << name_of(asked);
  EXPECT_THROW(kind(TaskKind::kLabels, {data::kClassTarget}), InvalidArgument);
}

TEST(TaskKindOf, NeedsOneTarget) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
    task_kind({}, {kPrice, kTokens});
  }),
      "train: a task has one target, and a sample of fashion-mnist has 2: price [3] float, next "
      "[64] int64");
  EXPECT_THROW(task_kind({.task = TaskKind::kRegression}, {}), InvalidArgument);
}

TEST(TaskOutputs, AreClassesOrWhatATargetHas) {
  EXPECT_EQ(task_outputs({}, Formed({data::kClassTarget}, 7)), 7);
  EXPECT_EQ(task_outputs({.classes = 9}, Formed({data::kClassTarget}, 7)), 9);
  EXPECT_EQ(task_outputs({.classes = 50}, Formed({kTokens})), 50);
  EXPECT_EQ(task_outputs({}, Formed({kPrice})), 3);
  EXPECT_EQ(task_outputs({}, Formed({kTags})), 5);
  EXPECT_EQ(task_outputs({}, Formed({})), 10) << "the numbers of the image";
}

TEST(TaskOutputs, NeedANumberOfClassesThatFits) {
  EXPECT_THAT(message_of<InvalidArgument>([] { task_outputs({}, Formed({kTokens})); }),
      HasSubstr("does not say how many classes there are; give --num-classes"));
  EXPECT_THAT(
      message_of<InvalidArgument>([] { task_outputs({.classes = 6}, Formed({kTokens}, 7)); }),
      HasSubstr("--num-classes 6 is less than the 7 classes"));
  EXPECT_THAT(message_of<InvalidArgument>([] { task_outputs({.classes = 3}, Formed({kPrice})); }),
      HasSubstr("--num-classes is for classes, and the task regression has none; classes are whole "
                "numbers, one a sample, and the targets are price [3] float"));
}

TaskPointer asked_task(const TrainOptions& options, const Targets& targets) {
  const SampleForm form{.image = {10}, .outputs = 5, .inputs = {}, .targets = targets};
  nn::Model model = nn::make_model("toy", form.outputs);
  return make_task(options, form, model);
}

TEST(MakeNet, GivesLanguageModelsAloneTheirDropout) {
  const SampleForm form{.image = {10}, .outputs = 5};
  EXPECT_NO_THROW(make_net({.model = "llama-260k", .dropout = 0.1}, form));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { make_net({.model = "toy", .dropout = 0.1}, form); }),
      HasSubstr("--dropout is for our language models"));
}

TEST(MakeTask, MakesEachOfThem) {
  const auto is = [](const TaskPointer& task, const auto* kind) {
    return dynamic_cast<decltype(kind)>(task.get()) != nullptr;
  };
  EXPECT_TRUE(
      is(asked_task({}, {data::kClassTarget}), static_cast<const Classification*>(nullptr)));
  EXPECT_TRUE(is(asked_task({}, {kTokens}), static_cast<const Tokens*>(nullptr)));
  EXPECT_TRUE(is(asked_task({}, {kMask}), static_cast<const Segmentation*>(nullptr)));
  EXPECT_TRUE(is(asked_task({}, {kPrice}), static_cast<const Regression*>(nullptr)));
  EXPECT_TRUE(is(asked_task({}, {kTags}), static_cast<const Labels*>(nullptr)));
  EXPECT_TRUE(is(asked_task({}, {}), static_cast<const Reconstruction*>(nullptr)));
}

TEST(MakeTask, TakesTheLossesOfItsTaskAlone) {
  EXPECT_NO_THROW(asked_task({.loss = "huber"}, {kPrice}));
  EXPECT_NO_THROW(asked_task({.loss = "cross-entropy"}, {kTokens}));
  EXPECT_EQ(message_of<InvalidArgument>([] { asked_task({.loss = "cross-entropy"}, {kPrice}); }),
      "train: --loss cross-entropy is not for the task regression; it has mse, l1, huber");
  EXPECT_THAT(
      message_of<InvalidArgument>([] { asked_task({.loss = "huber"}, {data::kClassTarget}); }),
      HasSubstr("there is no such loss: huber; there are cross-entropy, mse"));
}

TEST(MakeTask, RefusesFlagsThatMeanNothingToIt) {
  EXPECT_EQ(message_of<InvalidArgument>([] { asked_task({.eval_metric = "top1"}, {kPrice}); }),
      "train: --eval-metric top1: the task regression measures loss, mae, rmse, r2");
  EXPECT_THROW(asked_task({.eval_metric = "mae"}, {data::kClassTarget}), InvalidArgument);
  EXPECT_THROW(asked_task({.eval_metric = "bits-per-byte"}, {kTokens}), InvalidArgument)
      << "a token is no byte";
  EXPECT_THROW(asked_task({.smoothing = 0.1}, {kPrice}), InvalidArgument);
  EXPECT_NO_THROW(asked_task({.smoothing = 0.1}, {kTokens}));
  EXPECT_THROW(
      asked_task({.loading = {.bad_images = BadImages::kSkip}}, {kPrice}), InvalidArgument);
  EXPECT_THAT(
      message_of<InvalidArgument>([] { asked_task({.task = TaskKind::kProgram}, {kPrice}); }),
      HasSubstr("--task program is for a model that returns its own `loss`, a number, by that "
                "name, and "));
}

}  // namespace
}  // namespace lockstep
