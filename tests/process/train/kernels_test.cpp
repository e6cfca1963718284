// Which kernels a run has, and that it keeps them.

#include <cmath>
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
    run(name, "--max-steps 4 " + flags).with_code(0);
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
    run(who, "--max-steps 4 --resume auto").with_code(0);
    EXPECT_EQ(hash(who), expected) << who;
  }
}

// Nothing in its folder names kernels: so it is with each run from before there was a choice.
TEST_F(TrainKernels, OfLibTorchLeaveNoTraceAndAreNotChanged) {
  ASSERT_EQ(run("run", "--max-steps 2 --kernels libtorch").code(), 0);
  EXPECT_THAT(contents(output("run") + "/config.toml"), Not(HasSubstr("kernels")));
  const Ended ended = run("run", "--max-steps 4 --resume auto --kernels own").with_code(3);
  EXPECT_THAT(ended.err, HasSubstr("--kernels: the snapshot has no value, now \"own\""));
}

// Where all that a layer gives is denormal, logits are zeros without them, and the loss of ten
// classes is ln 10.
TEST(TrainDenormals, CountAsZeroInEveryThreadUnlessTheyAreKept) {
  const TemporaryFolder folder;
  const auto loss = [&](const std::string& flags) {
    const Ended ended = train("--plugin " LOCKSTEP_PLUGINS
                              "/layers.so --model denormal --data mock --image-size 8 "
                              "--batch-size 8 --max-steps 2 --overwrite --output " +
                              folder.file("run") + " " + flags);
    EXPECT_EQ(ended.code(), 0) << ended.err;
    const auto summary = nlohmann::json::parse(contents(folder.file("run") + "/summary.json"));
    return summary["epochs"][0]["train_loss"].get<double>();
  };
  for (const std::string way : {"", "--parallel dp --places 2", "--nproc-per-node 2"}) {
    EXPECT_NEAR(loss(way), std::log(10.0), 1e-6) << way;
    EXPECT_GT(std::abs(loss(way + " --keep-denormals") - std::log(10.0)), 1e-4) << way;
  }
}

}  // namespace
}  // namespace lockstep::testing
