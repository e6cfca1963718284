#include "bench/cli/collectives_flags.h"

#include <gmock/gmock.h>
#include <sstream>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

using bench::Collective;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

std::string sweep_refusal(const Words& arguments) {
  return testing::message_of<InvalidArgument>([&] { parse_collectives(arguments); });
}

TEST(CollectivesFlags, MeasureAllReduceOfTwoRanksByDefault) {
  const auto command = parse_collectives({});
  ASSERT_TRUE(command);
  EXPECT_THAT(command->sweep.collectives, ElementsAre(Collective::kAllReduce));
  EXPECT_THAT(command->sweep.backends, ElementsAre("shm", "gloo"));
  EXPECT_TRUE(command->sweep.group_memory);
  EXPECT_TRUE(command->sweep.check);
  EXPECT_EQ(command->sweep.min_bytes, 1024);
  EXPECT_EQ(command->sweep.max_bytes, 64 << 20);
  EXPECT_EQ(command->ranks, 2);
  EXPECT_TRUE(command->pin);
  EXPECT_FALSE(command->ranks_are_threads());
}

TEST(CollectivesFlags, TakeListsAndSizes) {
  const auto command = parse_collectives({"--op", "reduce,all_to_all", "--backend", "threads",
      "--memory", "ordinary", "--min-bytes=4096", "--max_bytes", "16M", "--factor", "2",
      "--nproc_per_node", "3", "--warmup", "5", "--iterations", "7", "--no-check", "--no-pin"});
  ASSERT_TRUE(command);
  EXPECT_THAT(command->sweep.collectives, ElementsAre(Collective::kReduce, Collective::kAllToAll));
  EXPECT_TRUE(command->ranks_are_threads());
  EXPECT_FALSE(command->sweep.group_memory);
  EXPECT_EQ(command->sweep.min_bytes, 4096);
  EXPECT_EQ(command->sweep.max_bytes, 16 << 20);
  EXPECT_EQ(command->sweep.factor, 2);
  EXPECT_EQ(command->sweep.warmup, 5);
  EXPECT_EQ(command->sweep.iterations, 7);
  EXPECT_FALSE(command->sweep.check);
  EXPECT_FALSE(command->pin);
  EXPECT_EQ(command->ranks, 3);
  EXPECT_EQ(parse_collectives({"--max-bytes", "2GiB"})->sweep.max_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(parse_collectives({"--op", "all"})->sweep.collectives.size(), 6U);
}

TEST(CollectivesFlags, RefuseAndSuggest) {
  EXPECT_THAT(sweep_refusal({"--op", "allreduce"}), HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(sweep_refusal({"--backend", "glo"}), HasSubstr("did you mean gloo?"));
  EXPECT_THAT(
      sweep_refusal({"--memory", "own"}), HasSubstr("--memory must be one of group, ordinary"));
  EXPECT_THAT(
      sweep_refusal({"--max-bytes", "64Q"}), HasSubstr("--max-bytes must be a number of bytes"));
  EXPECT_THAT(sweep_refusal({"--max-bytes", "M"}), HasSubstr("--max-bytes"));
  EXPECT_THAT(sweep_refusal({"--min-bytes", "-4"}), HasSubstr("--min-bytes"));
  EXPECT_THAT(sweep_refusal({"--max-bytes", "99999999G"}), HasSubstr("--max-bytes"));
  EXPECT_THAT(sweep_refusal({"--iteratons", "3"}), HasSubstr("did you mean --iterations?"));
  EXPECT_THAT(sweep_refusal({"--nproc-per-node", "many"}), HasSubstr("--nproc-per-node"));
}

TEST(CollectivesFlags, HelpFitsIntoTheTerminal) {
  EXPECT_FALSE(parse_collectives({"--help"}));
  std::istringstream lines(collectives_help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120U) << line;
}

}  // namespace
}  // namespace lockstep::cli
