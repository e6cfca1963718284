// Sets of tensors and of text, from the files to a trained net.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/data/tensor_files.h"
#include "tests/process/command.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

/// A folder with 203 images to train with and 50 to test with, as tensors.
class TensorSet : public ::testing::Test {
 protected:
  TensorSet() {
    write_part("train", 203);
    write_part("test", 50);
  }

  void write_part(const std::string& part, std::int64_t samples) const {
    std::vector<std::int64_t> classes;
    std::vector<float> pixels;
    for (std::int64_t i = 0; i < samples; ++i) classes.push_back(i % 10);
    for (std::int64_t i = 0; i < samples * 28 * 28; ++i)
      pixels.push_back(static_cast<float>(i % 251) / 250);
    write_tensors(folder_.path() / (part + ".safetensors"),
        {{"x", ElementType::kFloat32, {samples, 1, 28, 28}, bytes_of_numbers(pixels)},
            integers("y", classes)});
  }

  TemporaryFolder folder_, runs_;
};

TEST_F(TensorSet, IsCheckedTensorByTensor) {
  const auto checked = run_command(words("data check tensors:" + folder_.str() + " --json"));
  ASSERT_EQ(checked.code(), 0) << checked.err;
  const auto report = nlohmann::json::parse(checked.out);
  const auto& train = report["parts"][0];
  EXPECT_EQ(train["images"], 203);
  EXPECT_EQ(train["per_class"][0], 21);
  EXPECT_EQ(train["tensors"][0]["name"], "x");
  EXPECT_EQ(train["tensors"][0]["most"], 1);
  EXPECT_EQ(train["tensors"][1]["is_target"], true);
  EXPECT_EQ(report["parts"][1]["name"], "test");
}

TEST_F(TensorSet, OfRunsThatWereStoppedAndContinuedGivesTheSameBits) {
  const auto to = [&](int steps, const std::string& run) {
    train("--model mnist-small --data tensors:" + folder_.str() +
          " --batch-size 16 --nproc-per-node 2 --resume auto --output " + runs_.file(run) +
          " --max-steps " + std::to_string(steps))
        .with_code(0);
    return contents(runs_.path() / run / "model.safetensors");
  };
  to(5, "stopped");  // within the first epoch
  EXPECT_EQ(to(10, "stopped"), to(10, "whole"));
  write_part("train", 204);
  const auto changed = train("--model mnist-small --data tensors:" + folder_.str() +
                             " --batch-size 16 --nproc-per-node 2 --resume auto --output " +
                             runs_.file("whole") + " --max-steps 12");
  EXPECT_EQ(changed.code(), 3);
  EXPECT_THAT(changed.err, HasSubstr("the snapshot has 203, now 204"));
}

TEST_F(TensorSet, OfTextIsShownAsNumbers) {
  const std::string text(100, 'a'), page = runs_.file("page.html");
  const auto file = folder_.write("words.txt", std::vector<std::uint8_t>(text.begin(), text.end()));
  const auto shown = run_command(
      words("data show text " + file.string() + " --sequence-length 8 --output " + page));
  ASSERT_EQ(shown.code(), 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("12 of 12 samples"));
  EXPECT_THAT(contents(page), HasSubstr("3 of 100 tokens of the part train"));
}

}  // namespace
}  // namespace lockstep::testing
