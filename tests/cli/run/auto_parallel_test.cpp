#include "lockstep/cli/train/auto_parallel.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class AutoParallel : public ::testing::Test {
 protected:
  void began(const std::string& config, int ranks, const std::string& backend) const {
    std::ofstream(folder_.file("config.toml")) << config;
    std::ofstream(folder_.file("env.json"))
        << "{\"world_size\":" << ranks << ",\"backend\":\"" << backend << "\"}";
  }

  Words resumed(const Words& more = {}) const {
    Words words{"--parallel", "auto", "--output", folder_.str(), "--resume", "auto"};
    words.insert(words.end(), more.begin(), more.end());
    Words found = resolve_auto_parallel(words);
    found.erase(found.begin(), found.begin() + 4);
    return found;
  }

  std::string refusal(const Words& more) const {
    return testing::message_of<InvalidArgument>([&] { resumed(more); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(AutoParallel, KeepsTheWayOfARunThatIsContinued) {
  began("parallel = \"serial\"\nbatch-size = 8\n", 1, "single");
  EXPECT_THAT(resumed({"-b", "8"}), ElementsAre("--batch-size", "8"));
  began("parallel = \"ddp\"\nbatch-size = 8\n", 2, "shm");
  EXPECT_THAT(resumed({"--batch-size=16", "--lr", "0.1", "--places", "4"}),
      ElementsAre(
          "--lr", "0.1", "--batch-size", "8", "--parallel", "ddp", "--nproc-per-node", "2"));
  began("parallel = \"dp\"\nplaces = 2\nbatch-size = 8\n", 1, "single");
  EXPECT_THAT(
      resumed({"-b", "16"}), ElementsAre("--batch-size", "8", "--parallel", "dp", "--places", "2"));
  began("parallel = \"pp\"\nplaces = 2\nchunks = 4\nschedule = \"gpipe\"\nbatch-size = 128\n", 1,
      "single");
  EXPECT_THAT(resumed(), ElementsAre("--batch-size", "128", "--parallel", "pp", "--places", "2",
                             "--chunks", "4", "--schedule", "gpipe"));
}

TEST_F(AutoParallel, RefusesWhatThatWayContradicts) {
  began("parallel = \"ddp\"\nbatch-size = 8\n", 2, "shm");
  EXPECT_THAT(refusal({"-b", "8"}), AllOf(HasSubstr("takes 16 samples"), HasSubstr("is 8")));
  EXPECT_THAT(refusal({"-b", "16", "--places", "1"}), HasSubstr("spread over 2 places"));
}

TEST_F(AutoParallel, RefusesWhatItWouldChooseItself) {
  for (const char* flag : {"--stages", "--stages-per-place", "--chunks"})
    EXPECT_THAT(refusal({flag, "2"}), HasSubstr(flag));
  EXPECT_THAT(refusal({"--schedule", "gpipe"}), HasSubstr("--schedule is among what"));
  EXPECT_THAT(refusal({"--balance", "size"}), HasSubstr("--balance"));
  EXPECT_THAT(refusal({"--lr-scale", "linear"}), HasSubstr("--lr-scale"));
}

}  // namespace
}  // namespace lockstep::cli
