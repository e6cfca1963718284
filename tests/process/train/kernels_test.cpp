// Which kernels a run has, and that it keeps them.

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

class TrainKernels : public ::testing::Test {
 protected:
  Ended run(const std::string& name, const std::string& flags) const {
    return train("--plugin " LOCKSTEP_PLUGINS
                 "/layers.so --model convolutions --data mock --image-size 8 --batch-size 8 "
                 "--val-interval never --output " +
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

TEST_F(TrainKernels, AreOursByDefaultAndTheSameInEachRun) {
  const std::string usual = whole("usual", "");
  EXPECT_EQ(usual, whole("again", "--kernels auto"));
  EXPECT_NE(usual, whole("libtorch", "--kernels libtorch"));
  EXPECT_NE(whole("own", "--kernels own"), hash("libtorch"));
}

TEST_F(TrainKernels, OfAResumedRunAreKept) {
  for (const std::string who : {"own", "libtorch"}) {
    const std::string flag = "--kernels " + who;
    const std::string expected = whole("whole-" + who, flag);
    ASSERT_EQ(run(who, "--max-steps 2 " + flag).code(), 0);
    const Ended ended = run(who, "--max-steps 4 --resume auto");
    ASSERT_EQ(ended.code(), 0) << ended.err;
    EXPECT_EQ(hash(who), expected) << who;
  }
}

// Nothing in its folder names kernels: so it is with each run from before there was a choice.
TEST_F(TrainKernels, OfLibTorchLeaveNoTraceAndAreNotChanged) {
  ASSERT_EQ(run("run", "--max-steps 2 --kernels libtorch").code(), 0);
  EXPECT_THAT(contents(output("run") + "/config.toml"), Not(HasSubstr("kernels")));
  const Ended ended = run("run", "--max-steps 4 --resume auto --kernels own");
  EXPECT_EQ(ended.code(), 3);
  EXPECT_THAT(ended.err, HasSubstr("--kernels: the snapshot has no value, now \"own\""));
}

}  // namespace
}  // namespace lockstep::testing
