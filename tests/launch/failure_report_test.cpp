#include "lockstep/launch/output/failure_report.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Failure killed_rank() {
  Failure failure;
  failure.rank = 1;
  failure.world_size = 4;
  failure.host = "box";
  failure.pid = 17;
  failure.status = {.signal = SIGKILL};
  return failure;
}

TEST(ExitStatus, SaysCodeOrSignal) {
  EXPECT_EQ(ExitStatus{.code = 138}.text(), "exited with code 138");
  EXPECT_EQ(ExitStatus{.code = 138}.result(), 138);
  EXPECT_EQ(ExitStatus{.signal = SIGSEGV}.text(), "was killed by SIGSEGV (signal 11)");
  EXPECT_EQ(ExitStatus{.signal = SIGSEGV}.result(), 139);
  EXPECT_EQ(signal_number("SIGTERM"), SIGTERM);
  EXPECT_EQ(signal_number("INT"), SIGINT);
  EXPECT_EQ(signal_number("SIGNONE"), std::nullopt);
}

TEST(FailureReport, NamesRankHostProcessAndSignal) {
  const std::string headline = "rank 1 of 4 (host box, pid 17) was killed by SIGKILL (signal 9)";
  EXPECT_EQ(failure_headline(killed_rank()), headline);
  EXPECT_EQ(failure_report(killed_rank()), headline + "\n");
}

constexpr const char* kHeadline = "rank 1 of 4 (host box, pid 17) was killed by SIGKILL (signal 9)";

TEST(FailureReport, HasTheMessageInItsHeadline) {
  Failure failure = killed_rank();
  failure.last_lines = {"first", "last"};
  failure.log = "logs/rank-1.log";
  failure.message = "out of luck\ntwice\n";
  EXPECT_EQ(failure_report(failure),
      concat(kHeadline, ": out of luck\n  | twice\nlockstep: its whole output: logs/rank-1.log\n"));
}

// The rest of the message is where the last line says.
TEST(FailureReport, QuotesALongMessageInPart) {
  Failure failure = killed_rank();
  failure.message = "they differ:";
  for (int line = 0; line < 1000; ++line) failure.message += concat("\nline ", line);
  const std::string start = concat(kHeadline, ": they differ:\n  | line 0\n");
  EXPECT_EQ(failure_report(failure), start + "  | and 999 more lines\n");
  failure.message_log = "logs/rank-0.log";
  EXPECT_EQ(failure_report(failure), start + "lockstep: 999 more lines: logs/rank-0.log\n");
  failure.log = "logs/rank-1.log";
  EXPECT_EQ(failure_report(failure),
      start + "lockstep: 999 more lines, and its whole output: logs/rank-1.log\n");
}

TEST(FailureReport, ShowsAMessageOfThreeLinesWhole) {
  Failure failure = killed_rank();
  failure.message = "one\ntwo\nthree\n";
  failure.message_log = "logs/rank-0.log";
  EXPECT_EQ(failure_report(failure), concat(kHeadline, ": one\n  | two\n  | three\n"));
}

// With one more that says whether there is a restart.
TEST(FailureReport, HasAtMostTwoLinesOfDetail) {
  Failure failure = killed_rank();
  failure.last_lines = {"first", "second", "third", "last"};
  EXPECT_EQ(failure_report(failure), concat(kHeadline, "\n  | third\n  | last\n"));
  failure.log = "logs/rank-1.log";
  EXPECT_EQ(failure_report(failure),
      concat(kHeadline, "\n  | last\nlockstep: its whole output: logs/rank-1.log\n"));
}

TEST(FailureReport, SaysWhenMemoryWasTheReason) {
  Failure failure = killed_rank();
  EXPECT_THAT(failure_report(failure), Not(HasSubstr("memory")));
  failure.oom.on_host = 1;
  EXPECT_THAT(failure_report(failure), HasSubstr("probably out of memory"));
  failure.oom.in_cgroup = 1;
  EXPECT_THAT(failure_report(failure), HasSubstr("lockstep: out of memory"));
  failure.status = {.code = 1};
  EXPECT_THAT(failure_report(failure), Not(HasSubstr("memory")));
}

TEST(FailureReport, PointsToTheOtherNodesWhenPeersWereLost) {
  Failure failure = killed_rank();
  failure.status = {.code = 5};
  EXPECT_THAT(failure_report(failure), Not(HasSubstr("another node")));
  failure.nodes = 2;
  EXPECT_THAT(failure_report(failure), HasSubstr("another node"));
}

TEST(FailureReport, SaysWhereARankHung) {
  Failure failure = killed_rank();
  failure.status = {.code = 5};
  failure.nodes = 2;
  failure.last_lines = {"its output"};
  failure.hang = Hang{.what = "hangs: it is in no call"};
  const std::string headline = "rank 1 of 4 (host box, pid 17) hangs: it is in no call";
  EXPECT_EQ(failure_headline(failure), headline);
  EXPECT_EQ(failure_report(failure), headline + "\n");
  failure.hang->others = "rank 0 waits in barrier 3";
  failure.hang->frames = {"one", "two", "three", "four"};
  failure.hang->log = "logs/rank-1-stack.log";
  EXPECT_EQ(failure_report(failure),
      headline +
          "\n  | one\n  | two\n  | three\nlockstep: its whole stack: logs/rank-1-stack.log\n"
          "lockstep: rank 0 waits in barrier 3\n")
      << "its stack is below its own line";
}

TEST(ErrorFile, UnderstandsTorchsForms) {
  EXPECT_EQ(error_file_message(R"({"message": "text"})"), "text");
  EXPECT_EQ(error_file_message(R"({"message": {"message": "inner", "extraInfo": {}}})"), "inner");
  EXPECT_EQ(error_file_message("plain"), "plain");
  EXPECT_EQ(error_file_message(R"({"message": 7})"), R"({"message": 7})");
  EXPECT_EQ(error_file_message(""), "");
}

TEST(ErrorFile, IsWrittenThroughItsPath) {
  const ErrorFile file;
  EXPECT_EQ(file.message(), "");
  std::FILE* writer = std::fopen(file.path().c_str(), "w");
  ASSERT_NE(writer, nullptr);
  std::fputs(R"({"message": "said"})", writer);
  std::fclose(writer);
  EXPECT_EQ(file.message(), "said");
}

}  // namespace
}  // namespace lockstep::launch
