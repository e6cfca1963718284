#include <algorithm>
#include <gmock/gmock.h>

#include "tests/process/command.h"

#include "lockstep/core/text.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* const kBoth = "echo out $RANK; echo err $RANK >&2";

std::vector<std::string> sorted_lines(const std::string& text) {
  auto lines = split(text, '\n');
  if (lines.back().empty()) lines.pop_back();  // what follows the last newline
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(LauncherOutput, HasAPrefixWhenSeveralRanksAreShownAndAFileForEach) {
  const TemporaryFolder folder;
  const auto run = run_command(shell_ranks(kBoth, "--log-dir " + folder.str()));
  EXPECT_THAT(sorted_lines(run.out), ElementsAre("[rank 0] out 0", "[rank 1] out 1"));
  EXPECT_THAT(sorted_lines(run.err), ElementsAre("[rank 0] err 0", "[rank 1] err 1"));
  EXPECT_THAT(folder.names(), ElementsAre("rank-0.log", "rank-1.log"));
  EXPECT_THAT(sorted_lines(contents(folder.file("rank-1.log"))), ElementsAre("err 1", "out 1"));
}

TEST(LauncherOutput, FilesHoldExactlyTheStreamsThatMasksName) {
  const TemporaryFolder folder;
  const auto run = run_command(shell_ranks(
      kBoth, "--log-dir " + folder.str() +
                 " -r 0:2 -t 0:1,1:2 --role worker --log-line-prefix <${role_name}${local_rank}>"));
  EXPECT_THAT(
      folder.names(), ElementsAre("rank-0.stderr.log", "rank-0.stdout.log", "rank-1.stderr.log"));
  EXPECT_EQ(contents(folder.file("rank-0.stderr.log")), "err 0\n");
  EXPECT_EQ(contents(folder.file("rank-0.stdout.log")), "out 0\n");
  EXPECT_EQ(contents(folder.file("rank-1.stderr.log")), "err 1\n");
  EXPECT_THAT(sorted_lines(run.out), ElementsAre("<worker0>out 0", "<worker1>out 1"));
  EXPECT_THAT(sorted_lines(run.err), ElementsAre("<worker1>err 1"));
}

TEST(LauncherOutput, ShowsOnlyTheRanksThatAreAskedFor) {
  const auto run = run_command(shell_ranks(kBoth, "--local-ranks-filter 1"));
  EXPECT_EQ(run.out, "out 1\n");
  EXPECT_EQ(run.err, "err 1\n");
}

TEST(LauncherOutput, LosesNoLine) {
  const TemporaryFolder folder;
  const auto run = run_command(shell_ranks("seq 1 250000", "--log-dir " + folder.str()));
  std::vector<std::string> expected;
  for (int rank = 0; rank < 2; ++rank) {
    for (int line = 1; line <= 250000; ++line) {
      expected.push_back("[rank " + std::to_string(rank) + "] " + std::to_string(line));
    }
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(run.code(), 0);
  EXPECT_TRUE(sorted_lines(run.out) == expected) << run.out.size();
  EXPECT_EQ(sorted_lines(contents(folder.file("rank-0.log"))).size(), 250000U);
}

TEST(LauncherOutput, AFailureIsSeenWhileNobodyReads) {
  // The launcher's output is full and its reader waits; the failing rank must end the run's
  // processes all the same.
  Command running(
      shell_ranks("echo pid $$; [ $RANK = 0 ] && exec seq 1 10000000; sleep 0.3; exit 9"));
  const auto pids = numbers_after("pid", running.wait_for_lines(2));
  ASSERT_THAT(pids, ::testing::Not(IsEmpty()));
  EXPECT_TRUE(all_end(pids)) << "nothing is read from the launcher meanwhile";
  EXPECT_THAT(running.wait().with_code(9).err, HasSubstr("rank 1 of 2"));
}

TEST(LauncherOutput, ShowsWhatAHiddenRankSaidWhenItFailed) {
  const TemporaryFolder folder;
  const auto run = run_command(shell_ranks(
      "echo secret; [ $RANK = 1 ] && exit 6; sleep 600", "--log-dir " + folder.str() + " -r 3"));
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.status.code, 6);
  EXPECT_THAT(run.err, HasSubstr("  | secret\n"));
  EXPECT_THAT(run.err, HasSubstr(folder.file("rank-1.stderr.log")));
}

}  // namespace
}  // namespace lockstep::testing
