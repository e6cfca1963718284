#include "lockstep/cli/flags/launch_arguments.h"

#include <gmock/gmock.h>

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const FlagNames kNames{{"--nproc-per-node", "--log-dir", "-t"}, {"--standalone", "-q"}};

TEST(SplitAtProgram, LeavesTheProgramsOwnFlagsToIt) {
  const auto split =
      split_at_program({"--nproc_per_node", "2", "-q", "./hello", "--log-dir", "x"}, kNames);
  EXPECT_THAT(split.flags, ElementsAre("--nproc-per-node", "2", "-q"));
  EXPECT_THAT(split.rest, ElementsAre("./hello", "--log-dir", "x"));
}

TEST(SplitAtProgram, StopsAtTwoDashes) {
  const auto split = split_at_program({"--standalone", "--", "--odd", "--"}, kNames);
  EXPECT_THAT(split.flags, ElementsAre("--standalone"));
  EXPECT_THAT(split.rest, ElementsAre("--odd", "--"));
}

TEST(SplitAtProgram, UnderstandsValuesInTheSameWord) {
  const auto split = split_at_program({"--log_dir=a_b", "-t3", "prog"}, kNames);
  EXPECT_THAT(split.flags, ElementsAre("--log-dir=a_b", "-t3"));
  EXPECT_THAT(split.rest, ElementsAre("prog"));
}

TEST(SplitAtProgram, MayFindNoProgram) {
  EXPECT_THAT(split_at_program({"-t"}, kNames).rest, IsEmpty());
  EXPECT_THAT(split_at_program({}, kNames).flags, IsEmpty());
}

TEST(TakeFlags, FindsThemAnywhere) {
  const auto split = take_flags(
      {"--model", "toy", "-np", "2", "--json", "--log-dir=x", "--lr_scale", "none"}, kNames);
  EXPECT_THAT(split.flags, ElementsAre("--nproc-per-node", "2", "--log-dir=x"));
  EXPECT_THAT(split.rest, ElementsAre("--model", "toy", "--json", "--lr_scale", "none"));
}

TEST(CanonicalFlag, ChangesNamesOnly) {
  EXPECT_EQ(canonical_flag("--max_restarts=a_b"), "--max-restarts=a_b");
  EXPECT_EQ(canonical_flag("-np=2"), "--nproc-per-node=2");
  EXPECT_EQ(canonical_flag("under_score"), "under_score");
}

}  // namespace
}  // namespace lockstep::cli
