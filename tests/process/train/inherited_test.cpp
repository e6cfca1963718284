// Trains under closed standard streams, broken pipes and ignored signals.

#include <gtest/gtest.h>

#include "tests/process/command.h"
#include "tests/process/train/trained_run.h"

namespace lockstep::testing {
namespace {

constexpr const char* kShort =
    "train --model toy --data mock --max-steps 60 --log-interval 5 --progress line "
    "--nproc-per-node ";

class TrainInherits : public ::testing::TestWithParam<std::string> {
 protected:
  Words arguments() const { return words(kShort + GetParam() + " --output " + output()); }
  std::string output() const { return folder_.file("run"); }

  // Text for the console in there is no JSON, and throws.
  void expect_a_whole_run(const Ended& ended) const {
    EXPECT_EQ(ended.code(), 0) << ended.err;
    EXPECT_EQ(std::ssize(json_lines(output() + "/metrics.jsonl")), 13);
    EXPECT_EQ(nlohmann::json::parse(contents(output() + "/summary.json"))["exit"], 0);
  }

 private:
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, TrainInherits, ::testing::Values("1", "2"));

TEST_P(TrainInherits, ClosedStandardStreams) {
  for (const std::string closed : kClosedStreams) {
    std::filesystem::remove_all(output());
    expect_a_whole_run(run_through_shell(closed, arguments()));
  }
}

TEST_P(TrainInherits, AnIgnoredChildSignal) {
  expect_a_whole_run(run_through_shell("", arguments(), "trap '' CHLD; "));
}

// As by `lockstep train ... | head -1`.
TEST_P(TrainInherits, APipeWhoseReaderHasGone) {
  Words all = {"-c", "\"$0\" \"$@\" 2>&1 | true; exit ${PIPESTATUS[0]}", built_lockstep()};
  const Words own = arguments();
  all.insert(all.end(), own.begin(), own.end());
  expect_a_whole_run(run_command(all, {}, "/bin/bash"));
}

}  // namespace
}  // namespace lockstep::testing
