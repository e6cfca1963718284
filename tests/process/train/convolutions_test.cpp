// Which convolutions a run has, and that it keeps them.

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/command.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Small images, but layers of the kind and size that `auto` computes itself.
class TrainConvolutions : public ::testing::Test {
 protected:
  Ended run(const std::string& name, const std::string& flags) const {
    return train(
        "--model resnet18-cifar --data mock --image-size 8 --batch-size 8 --val-interval never "
        "--output " +
        output(name) + " " + flags);
  }
  std::string output(const std::string& name) const { return folder_.file(name); }
  std::string hash(const std::string& name) const {
    return nlohmann::json::parse(contents(output(name) + "/summary.json"))["parameters_hash"];
  }
  // The hash after four steps at once.
  std::string whole(const std::string& name, const std::string& flags) const {
    const Ended ended = run(name, "--max-steps 4 " + flags);
    EXPECT_EQ(ended.code(), 0) << ended.err;
    return hash(name);
  }

  const TemporaryFolder folder_;
};

TEST_F(TrainConvolutions, AreOursByDefaultAndTheSameInEachRun) {
  const std::string usual = whole("usual", "");
  EXPECT_EQ(usual, whole("again", "--convolutions auto"));
  EXPECT_NE(usual, whole("onednn", "--convolutions onednn"));
  EXPECT_NE(whole("own", "--convolutions own"), hash("onednn"));
}

TEST_F(TrainConvolutions, OfAResumedRunAreKept) {
  for (const std::string who : {"own", "onednn"}) {
    const std::string flag = "--convolutions " + who;
    const std::string expected = whole("whole-" + who, flag);
    ASSERT_EQ(run(who, "--max-steps 2 " + flag).code(), 0);
    const Ended ended = run(who, "--max-steps 4 --resume auto");
    ASSERT_EQ(ended.code(), 0) << ended.err;
    EXPECT_EQ(hash(who), expected) << who;
  }
}

// Nothing in its folder names convolutions: so it is with each run from before there was a choice.
TEST_F(TrainConvolutions, OfARunWithOneDnnLeaveNoTraceAndAreNotChanged) {
  ASSERT_EQ(run("run", "--max-steps 2 --convolutions onednn").code(), 0);
  EXPECT_THAT(contents(output("run") + "/config.toml"), Not(HasSubstr("convolutions")));
  const Ended ended = run("run", "--max-steps 4 --resume auto --convolutions own");
  EXPECT_EQ(ended.code(), 3);
  EXPECT_THAT(ended.err, HasSubstr("--convolutions: the snapshot has no value, now \"own\""));
}

}  // namespace
}  // namespace lockstep::testing
