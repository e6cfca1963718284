// The expected numbers are scikit-learn's and PyTorch's, made by tests/conformance/tasks.py.

#include "lockstep/train/task/task.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/train/task/class_of_each.h"
#include "lockstep/train/task/classification.h"
#include "lockstep/train/task/element_task.h"
#include "lockstep/train/task/labels.h"
#include "lockstep/train/task/program.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Optional;

constexpr std::int64_t kTaskSamples = 13;

torch::Tensor sines(std::int64_t count, double start) {
  const auto numbers = at::arange(count, torch::kDouble);
  return at::sin(numbers * numbers * 0.37 + start);
}

// From 0 to below - 1, every sixth of them ignored.
torch::Tensor classes_by_sines(std::int64_t count, double start, std::int64_t below) {
  torch::Tensor numbers = ((sines(count, start) + 1) * (static_cast<double>(below) / 2))
                              .floor()
                              .clamp_max(below - 1)
                              .to(torch::kLong);
  numbers.slice(0, 0, count, 6).fill_(kIgnoredTarget);
  return numbers;
}

/// A task with the outputs and targets of 13 samples, and what Python measures of them.
struct TaskCase {
  const char* name;  ///< in the file of numbers
  std::shared_ptr<const Task> task;
  torch::Tensor output, target;
  std::vector<const char*> scores;  ///< the first of the numbers, by their names in files
};

TaskCase regression_case(ElementLoss loss = ElementLoss::kMse) {
  const torch::Tensor means = at::tensor({0.0, 1.0, 1000.0});
  return {"Regression", std::make_shared<Regression>(loss),
      (sines(39, 0.5) * 2).view({13, 3}) + means, sines(39, 1.5).view({13, 3}) + means,
      {"loss", "", "", "mae", "rmse", "r2"}};
}

TaskCase reconstruction_case() {
  return {"Reconstruction", std::make_shared<Reconstruction>(ElementLoss::kBce),
      (sines(52, 0.5) * 3).view({13, 2, 2}), (sines(52, 1.5) / 2 + 0.5).view({13, 2, 2}),
      {"loss", "mae", "rmse"}};
}

TaskCase tokens_case() {
  return {"Tokens", std::make_shared<Tokens>(0.0, /*are_bytes=*/true),
      (sines(13 * 5 * 11, 0.5) * 3).view({13, 5, 11}), classes_by_sines(65, 1.5, 11).view({13, 5}),
      {"loss", "perplexity", "bits_per_byte"}};
}

TaskCase labels_case() {
  const torch::Tensor least = at::tensor({-0.5, 0.0, 0.5, 2.0});
  return {"Labels", std::make_shared<Labels>(), ((sines(52, 0.5) * 8).round() / 4).view({13, 4}),
      sines(52, 2.5).view({13, 4}).gt(least),
      {"loss", "micro_f1", "macro_f1", "average_precision"}};
}

TaskCase segmentation_case() {
  torch::Tensor scores = (sines(13 * 4 * 6, 0.5) * 3).view({13, 4, 2, 3});
  scores.select(1, 3).sub_(100);
  return {"Segmentation", std::make_shared<Segmentation>(0.0), scores,
      classes_by_sines(78, 1.5, 3).view({13, 2, 3}), {"loss", "mean_iou", "pixel_accuracy"}};
}

TaskCase classification_case() {
  return {"", std::make_shared<Classification>(), (sines(13 * 7, 0.5) * 3).view({13, 7}),
      classes_by_sines(13, 1.5, 7), {}};
}

std::vector<TaskCase> all_cases() {
  return {classification_case(), regression_case(), reconstruction_case(), tokens_case(),
      labels_case(), segmentation_case()};
}

std::optional<double> score_of(const Scores& scores, const std::string& name) {
  const auto* const found =
      std::ranges::find_if(kScores, [&](const ScoreName& score) { return score.name == name; });
  return found == std::end(kScores) ? std::nullopt : scores.*found->value;
}

// Of the samples of a rank, in batches of three; shares differ by one sample, and of 14 ranks the
// last has none.
Findings measured_by(const TaskCase& of, const ProcessGroup& world) {
  FindingsSum sum;
  const std::int64_t ranks = world.size(), rank = world.rank();
  const std::int64_t begin = rank * kTaskSamples / ranks, end = (rank + 1) * kTaskSamples / ranks;
  for (std::int64_t at = begin; at < end; at += 3) {
    const std::int64_t last = std::min(at + 3, end);
    sum.add(of.task->measure(of.output.slice(0, at, last), of.target.slice(0, at, last)));
  }
  return sum.over_all(world);
}

class Measured : public ::testing::TestWithParam<int> {};

TEST_P(Measured, IsWhatPythonMeasuresOfTheWholeWhateverTheShares) {
  for (const TaskCase& each : all_cases()) {
    if (each.scores.empty()) continue;
    const auto expected = testing::expected_numbers("tasks.txt", each.name);
    run_ranks(GetParam(), [&](const ProcessGroup& world) {
      const Evaluation result = each.task->evaluation(measured_by(each, world));
      EXPECT_EQ(result.samples, kTaskSamples);
      for (std::size_t i = 0; i < each.scores.size(); ++i) {
        if (*each.scores[i] == '\0') continue;
        EXPECT_THAT(
            score_of(result.scores, each.scores[i]), Optional(DoubleNear(expected.at(i), 1e-6)))
            << each.name << ": " << each.scores[i];
      }
    });
  }
}

TEST_P(Measured, HasTheSameBitsOnAllRanks) {
  const int ranks = GetParam();
  for (const TaskCase& each : all_cases()) {
    std::vector<Scores> of_ranks(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](const ProcessGroup& world) {
      of_ranks[static_cast<std::size_t>(world.rank())] =
          each.task->evaluation(measured_by(each, world)).scores;
    });
    for (const Scores& scores : of_ranks) EXPECT_EQ(scores, of_ranks.front()) << each.name;
  }
}

INSTANTIATE_TEST_SUITE_P(By, Measured, ::testing::Values(1, 2, 3, 14));

TEST(TaskLoss, PartsByTheirSharesAddUpToTheWholeWhateverIsIgnored) {
  for (const TaskCase& each : all_cases()) {
    const torch::Tensor whole = each.task->loss(each.output, each.target);
    torch::Tensor parts = at::zeros({}, torch::kDouble);
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 6}, {6, 13}})
      parts += each.task->loss(each.output.slice(0, begin, end), each.target.slice(0, begin, end)) *
               (end - begin) / static_cast<double>(kTaskSamples);
    EXPECT_NEAR(parts.item<double>(), whole.item<double>(), 1e-6) << each.name;
  }
}

TEST(TaskLoss, HasAGradientWhereEverythingIsIgnored) {
  for (const TaskCase& each : {tokens_case(), segmentation_case()}) {
    const torch::Tensor output = each.output.clone().requires_grad_();
    const torch::Tensor loss = each.task->loss(output, at::full_like(each.target, kIgnoredTarget));
    loss.backward();
    EXPECT_EQ(loss.item<double>(), 0) << each.name;
    EXPECT_EQ(output.grad().abs().max().item<double>(), 0) << each.name;
  }
}

TEST(TaskLoss, OfEachSampleIsWhatItIsAlone) {
  for (const TaskCase& each : all_cases()) {
    const torch::Tensor losses = each.task->losses(each.output, each.target);
    ASSERT_EQ(losses.sizes(), at::IntArrayRef({kTaskSamples})) << each.name;
    for (const std::int64_t sample : {1, 11}) {
      const Findings alone = each.task->measure(
          each.output.slice(0, sample, sample + 1), each.target.slice(0, sample, sample + 1));
      EXPECT_NEAR(
          losses[sample].item<double>(), each.task->evaluation(alone).scores.loss.value(), 1e-6)
          << each.name << " " << sample;
    }
  }
}

TEST(RegressionTask, HasTheLossesOfPyTorch) {
  const auto expected = testing::expected_numbers("tasks.txt", "Regression");
  const std::vector losses{ElementLoss::kMse, ElementLoss::kL1, ElementLoss::kHuber};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const TaskCase made = regression_case(losses[i]);
    EXPECT_NEAR(made.task->loss(made.output, made.target).item<double>(), expected.at(i), 1e-12);
  }
}

TEST(RegressionTask, ExplainsWhatDoesNotVaryAsScikitLearnDoes) {
  const Regression task(ElementLoss::kMse);
  const auto r2 = [&](const torch::Tensor& output) {
    return task.evaluation(task.measure(output, at::ones({4, 1}))).scores.r2;
  };
  EXPECT_EQ(r2(at::ones({4, 1})), 1);
  EXPECT_EQ(r2(at::zeros({4, 1})), 0);
  EXPECT_FALSE(task.evaluation(task.measure(at::ones({1, 1}), at::ones({1, 1}))).scores.r2)
      << "of one sample there is none";
}

TEST(RegressionTask, TakesARowForATargetOfAnyShapeAndNothingElse) {
  const Regression task(ElementLoss::kMse);
  EXPECT_EQ(task.loss(at::ones({4, 1}), at::zeros({4})).item<double>(), 1);
  EXPECT_EQ(task.loss(at::ones({4, 6}), at::zeros({4, 2, 3})).item<double>(), 1);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
    task.loss(at::ones({4, 3, 2}), at::ones({4, 2, 3}));
  }),
      HasSubstr("the model gives [4, 3, 2] for a target [4, 2, 3]"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
    task.loss(at::ones({4, 1}), at::ones({4, 2}));
  }),
      HasSubstr("the model gives [4, 1] for a target [4, 2]"));
}

TEST(ReconstructionTask, ComparesWithTheInput) {
  const Batch batch(at::ones({2, 3}), at::zeros({2}, torch::kLong));
  EXPECT_TRUE(Reconstruction(ElementLoss::kMse).target(batch).is_same(batch.input()));
}

TEST(TokensTask, CountsBitsOnlyWhereATokenIsAByte) {
  const TaskCase made = tokens_case();
  const Evaluation result = Tokens().evaluation(Tokens().measure(made.output, made.target));
  EXPECT_FALSE(result.scores.bits_per_byte);
  EXPECT_TRUE(result.scores.perplexity);
}

TEST(TokensTask, RefusesScoresThatHaveNotOneRowForEachToken) {
  EXPECT_THAT(message_of<InvalidArgument>([] {
    Tokens().loss(at::ones({4, 11}), at::zeros({4, 5}, torch::kLong));
  }),
      HasSubstr("the model gives [4, 11] for a target [4, 5]; the task needs scores [N, length, "));
  EXPECT_NO_THROW(Tokens().loss(at::ones({4, 11}), at::zeros({4}, torch::kLong)));
}

TEST(SegmentationTask, HasTheIntersectionsOfItsClasses) {
  const TaskCase made = segmentation_case();
  const auto expected = testing::expected_numbers("tasks.txt", made.name);
  const Evaluation result = made.task->evaluation(made.task->measure(made.output, made.target));
  ASSERT_EQ(result.of_classes.size(), 1U);
  const auto& iou = result.of_classes.front().values;
  ASSERT_EQ(iou.size(), 4U);
  for (std::size_t number = 0; number < 3; ++number)
    EXPECT_NEAR(iou[number].value(), expected.at(3 + number), 1e-12);
  EXPECT_FALSE(iou[3]) << "it is nowhere";
}

TEST(SegmentationTask, RefusesScoresOfOtherPixels) {
  EXPECT_THAT(message_of<InvalidArgument>([] {
    Segmentation(0.0).loss(at::ones({4, 3, 2, 2}), at::zeros({4, 4, 4}, torch::kLong));
  }),
      HasSubstr(
          "the model gives [4, 3, 2, 2] for a target [4, 4, 4]; the task needs scores [N, cl"));
}

TEST(LabelsTask, HasTheAveragePrecisionOfItsLabels) {
  const TaskCase made = labels_case();
  const auto expected = testing::expected_numbers("tasks.txt", made.name);
  const Evaluation result = made.task->evaluation(made.task->measure(made.output, made.target));
  ASSERT_EQ(result.of_classes.size(), 2U);
  for (std::size_t label = 0; label < 4; ++label)
    EXPECT_NEAR(result.of_classes[1].values[label].value(), expected.at(4 + label), 1e-12);
}

TEST(ClassificationTask, CountsTheHighestAndTheFiveHighest) {
  const torch::Tensor scores = at::tensor({0.0, 1.0, 2.0, 3.0, 4.0, 5.0}).repeat({4, 1});
  const torch::Tensor labels = torch::tensor({5, 1, 0, -100}, torch::kLong);
  const Classification task;
  const Evaluation result = task.evaluation(task.measure(scores, labels));
  EXPECT_EQ(result.samples, 3);
  EXPECT_EQ(result.scores.top1, 1.0 / 3);
  EXPECT_EQ(result.scores.top5, 2.0 / 3);
}

TEST(ProgramTask, WeighsThePartsOfABatchByTheirSamples) {
  const Program task({"accuracy5ish", "norm"});
  const torch::Tensor rows = at::tensor({3.0, 0.5, 1.0, 2.0, 1.0, 2.5, 0.0, 4.0}).view({2, 4});
  const torch::Tensor target = at::zeros({4, 0});
  EXPECT_DOUBLE_EQ(task.loss(rows, target).item<double>(), (3 * 0.5 + 2.5) / 4);
  const Evaluation result = task.evaluation(task.measure(rows, target));
  EXPECT_EQ(result.samples, 4);
  EXPECT_DOUBLE_EQ(result.scores.loss.value(), 1);
  EXPECT_THAT(
      result.scores.more, ElementsAre(std::pair<const std::string, double>("accuracy5ish", 0.75),
                              std::pair<const std::string, double>("norm", 2.5)));
}

TEST(ProgramTask, KeepsTheBitsOfASingleLoss) {
  const torch::Tensor rows = at::tensor({3.0F, 0.1F}).view({1, 2}).requires_grad_();
  const torch::Tensor loss = Program({}).loss(rows, at::zeros({3, 0}));
  EXPECT_EQ(loss.item<float>(), 0.1F);
  loss.backward();
  EXPECT_TRUE(rows.grad().equal(at::tensor({0.0F, 1.0F}).view({1, 2})));
}

TEST(ProgramTask, GivesTheNetInputsAndTargets) {
  Batch batch(at::ones({2, 3}), at::zeros({2}));
  batch.targets.push_back({"more", at::ones({2})});
  EXPECT_EQ(Program({}).inputs(batch).size(), 3U);
}

TEST(TasksOfNumbers, SayWhereTheyAreNone) {
  const double nan = std::nan("");
  const auto target = at::arange(4.0).view({2, 2}), output = at::full_like(target, nan);
  FindingsSum found;
  found.add(Regression(ElementLoss::kMse).measure(output, target));
  const Regression regression(ElementLoss::kMse);
  EXPECT_TRUE(std::isnan(regression.evaluation(found.over_all(ProcessGroup())).scores.r2.value()));
  EXPECT_TRUE(std::isnan(average_precision(output.select(1, 0), at::ones({2}))));
}

TEST(TasksOfNumbers, RefuseLabelsThatAreNone) {
  const auto logits = at::zeros({2, 3});
  for (const double label : {-100.0, 7.0})
    EXPECT_THROW(Labels().loss(logits, at::full({2, 3}, label)), InvalidArgument) << label;
}

TEST(ProgramTask, RefusesNamesThatTheFilesHaveAndRowsOfAnotherLength) {
  for (const char* name : {"lr", "epoch", "seconds", "precision", "worst", ""})
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { Program({name}); }), HasSubstr("name it otherwise"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
    Program({"a"}).loss(at::ones({1, 2}), at::ones({1, 0}));
  }),
      HasSubstr("gives rows of 3 numbers, not [1, 2]"));
}

}  // namespace
}  // namespace lockstep
