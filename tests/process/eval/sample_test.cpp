// `lockstep sample` shows what a language model has learned by `lockstep train`.

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/process/command.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/text.h"

namespace lockstep::testing {
namespace {

class Sample : public ::testing::Test {
 protected:
  Sample() {
    std::ofstream text(folder_.file("letters.txt"));
    for (int i = 0; i < 1000; ++i) text << "abcdefgh";
  }

  std::string run() const { return folder_.file("run"); }

  void train_for(int steps) const {
    train(concat("--model llama-260k --sequence-length 16 --val-split 0.1 --data text:",
              folder_.file("letters.txt"), " --batch-size 8 --lr 3e-3 --parallel pp --places 2 ",
              "--chunks 2 --max-steps ", steps, " --output ", run()))
        .with_code(0);
  }

  Ended sampled(const Words& more) const {
    Words all{"sample", "--run", run()};
    all.insert(all.end(), more.begin(), more.end());
    return run_command(all);
  }

  TemporaryFolder folder_;
};

TEST_F(Sample, GoesOnWithWhatARunHasLearned) {
  train_for(40);
  const auto epoch = nlohmann::json::parse(contents(run() + "/summary.json"))["epochs"].back();
  EXPECT_LT(epoch["val_bits_per_byte"].get<double>(), 0.5);
  EXPECT_NEAR(epoch["tokens_per_s"].get<double>(), 16 * epoch["samples_per_s"].get<double>(), 1e-3);
  const Ended ended = sampled({"--prompt", "cde", "--tokens", "20", "--temperature", "0"});
  EXPECT_EQ(ended.code(), 0) << ended.err;
  EXPECT_EQ(ended.out, "cdefghabcdefghabcdefgha\n");
  const Words drawn{"--prompt", "a", "--temperature", "5", "--seed", "1"};
  EXPECT_EQ(sampled(drawn).out, sampled(drawn).out);
  EXPECT_THAT(run_command({"eval", "--run", run()}).out, ::testing::HasSubstr("on text, val: "))
      << "there is no part to test on";
}

TEST_F(Sample, RefusesWhatItCannotGoOnWith) {
  EXPECT_EQ(sampled({"--prompt", "a"}).code(), 3);
  train_for(1);
  EXPECT_EQ(sampled({}).code(), 2);
  const Ended empty = sampled({"--prompt", ""});
  EXPECT_EQ(empty.code(), 2);
  EXPECT_THAT(empty.err, ::testing::HasSubstr("--prompt"));
}

}  // namespace
}  // namespace lockstep::testing
