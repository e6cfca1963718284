// Models of Python, from the file to a trained net (tests/formats/export/data/make_archives.py).

#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/data/tensor_files.h"
#include "tests/process/command.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::string archive(const std::string& name) {
  return std::string(LOCKSTEP_EXPORT_DATA) + "/" + name + ".pt2";
}

std::vector<float> floats(std::int64_t count) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  return numbers;
}

WrittenTensor tensor(const std::string& name, std::vector<std::int64_t> shape) {
  const auto numbers =
      floats(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies()));
  return {name, ElementType::kFloat32, std::move(shape), bytes_of_numbers(numbers)};
}

class ExportedNet : public ::testing::Test {
 protected:
  // 75 samples to train with: the last batch of an epoch is smaller.
  void write(const std::function<std::vector<WrittenTensor>(std::int64_t samples)>& tensors) const {
    write_tensors(folder_.path() / "train.safetensors", tensors(75));
    write_tensors(folder_.path() / "test.safetensors", tensors(20));
  }

  void write_images() const {
    write([](std::int64_t samples) {
      std::vector<std::int64_t> classes;
      for (std::int64_t i = 0; i < samples; ++i) classes.push_back(i % 3);
      return std::vector{tensor("x", {samples, 1, 4, 4}), integers("y", classes)};
    });
  }

  void write_text() const {
    std::vector<std::uint8_t> text;
    for (int i = 0; i < 4000; ++i)
      text.push_back(static_cast<std::uint8_t>("abcdefgh"[i * i / 7 % 8]));
    folder_.write("train.txt", text);
    folder_.write("test.txt", text);
  }

  Ended run(const std::string& net, const std::string& flags, const std::string& output) const {
    return train("--model " + archive(net) + " --batch-size 8 --opt sgd --lr 0.1 --output " +
                 runs_.file(output) + " " + flags);
  }

  std::string tensors() const { return "--data tensors:" + folder_.str() + " "; }

  std::string text() const {
    return "--data text:" + folder_.str() + " --sequence-length 8 --lr 1 ";
  }

  nlohmann::json summary(const std::string& run) const {
    return nlohmann::json::parse(contents(runs_.path() / run / "summary.json"));
  }

  TemporaryFolder folder_, runs_;
};

TEST_F(ExportedNet, StoppedAndContinuedOnTwoRanksGivesTheSameBits) {
  write_images();
  const auto to = [&](const std::string& steps, const std::string& output) {
    run("conv", tensors() + "--nproc-per-node 2 --resume auto --max-steps " + steps, output)
        .with_code(0);
    return contents(runs_.path() / output / "model.safetensors");
  };
  to("3", "stopped");
  // A task and a loss that are the usual ones need not be said, and may.
  EXPECT_EQ(to("12 --task classification --loss cross-entropy", "stopped"), to("12", "whole"));
}

TEST_F(ExportedNet, IsEvaluatedAsItWasInTraining) {
  write_images();
  run("conv", tensors() + "--epochs 2 --parallel dp --places 2", "dp").with_code(0);
  const auto evaluated = run_command(words("eval --run " + runs_.file("dp") + " --json"));
  ASSERT_EQ(evaluated.code(), 0) << evaluated.err;
  EXPECT_NEAR(nlohmann::json::parse(evaluated.out)["loss"], summary("dp")["test_loss"], 1e-6);
}

TEST_F(ExportedNet, OfTextLearnsTheNextByte) {
  write_text();
  run("language", text() + "--epochs 4 --nproc-per-node 2", "text").with_code(0);
  EXPECT_LT(summary("text")["test_perplexity"], 10);
}

TEST_F(ExportedNet, LearnsTheSameByEveryWay) {
  write_text();
  const auto loss = [&](const std::string& flags, const std::string& output) {
    run("language", text() + "--max-steps 30 " + flags, output).with_code(0);
    return summary(output)["test_loss"].get<double>();
  };
  const double alone = loss("", "alone");
  EXPECT_LT(alone, 5) << "it began with 5.5";
  EXPECT_NEAR(loss("--batch-size 4 --parallel dp --places 2", "dp"), alone, 1e-5);
  EXPECT_NEAR(loss("--batch-size 4 --nproc-per-node 2", "ddp"), alone, 1e-5);
  EXPECT_NEAR(loss("--batch-size 4 --nproc-per-node 2 --shard-optimizer", "zero"), alone, 1e-5);
  EXPECT_NEAR(loss("--parallel pp --chunks 4 --places 2", "places"), alone, 1e-5);
  EXPECT_NEAR(loss("--parallel pp --chunks 4 --nproc-per-node 2", "ranks"), alone, 1e-5);
}

TEST_F(ExportedNet, StoppedAndContinuedInStagesGivesTheSameBits) {
  write_text();
  const auto to = [&](int steps, const std::string& output) {
    run("language",
        text() + "--parallel pp --chunks 4 --nproc-per-node 2 --resume auto --max-steps " +
            std::to_string(steps),
        output)
        .with_code(0);
    return contents(runs_.path() / output / "model.safetensors");
  };
  EXPECT_NE(to(3, "stopped"), "");
  EXPECT_EQ(to(12, "stopped"), to(12, "whole"));
}

TEST_F(ExportedNet, ThatComputesItsLossNeedsNoOther) {
  write([](std::int64_t samples) {
    return std::vector{tensor("x", {samples, 3}), tensor("y", {samples})};
  });
  const std::string flags = tensors() + "--task program --epochs 3 ";
  run("fit", flags, "serial").with_code(0);
  run("fit", flags + "--parallel dp --places 2 --batch-size 4", "dp").with_code(0);
  EXPECT_LT(summary("serial")["test_loss"], 1);
  for (const char* number : {"test_loss", "test_absolute"})
    EXPECT_NEAR(summary("serial")[number], summary("dp")[number], 1e-6) << number;
  run("fit", flags + "--eval-metric max:absolute", "furthest").with_code(0);
  const auto far = summary("furthest");
  for (const auto& epoch : far["epochs"])
    EXPECT_LE(epoch["val_absolute"], far["best"]["value"]) << "the first epoch is the worst";
  EXPECT_THAT(run("fit", flags + "--eval-metric max:relative", "unknown").with_code(2).err,
      HasSubstr("measures loss, max:absolute, min:absolute"));
  const auto evaluated = run_command(words("eval --run " + runs_.file("serial")));
  EXPECT_EQ(evaluated.code(), 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("absolute"));
  EXPECT_THAT(run("fit", tensors(), "bare").err,
      HasSubstr("computes its loss itself; give --task program"));
}

TEST_F(ExportedNet, MustFitItsData) {
  write_images();
  EXPECT_THAT(run("conv", tensors() + "--num-classes 4", "a").err,
      HasSubstr("its first output must be scores of 4 classes, [N, 4], and is [2, 3]"));
  write([](std::int64_t samples) {
    return std::vector{tensor("row", {samples, 3}), tensor("y", {samples})};
  });
  EXPECT_THAT(
      run("fit", tensors() + "--task program --inputs row --targets y --parallel mp --places 2",
          "c")
          .err,
      HasSubstr("cannot be cut into 2 stages; lower --stages; a program of Python is cut between"));
  EXPECT_THAT(run("fit", tensors() + "--task program", "b").err,
      HasSubstr(
          "takes x, y, and tensors has row, y; give the tensors in that order by --inputs and "
          "--targets"));
  // One flag does not say the order of the others.
  EXPECT_THAT(run("fit", tensors() + "--task program --inputs row", "d").err,
      HasSubstr("give the tensors in that order"));
}

}  // namespace
}  // namespace lockstep::testing
