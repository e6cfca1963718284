#include "lockstep/launch/output/worker_output.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {
namespace {

TEST(StreamMask, ReadsOneForAllRanksOrOneEach) {
  const bool output[] = {false, true, false, true};
  const bool errors[] = {false, false, true, true};
  for (int mask = 0; mask < 4; ++mask) {
    const auto all = StreamMask::parse("--tee", std::to_string(mask));
    const auto one = StreamMask::parse("--tee", "12:" + std::to_string(mask));
    for (const auto& [parsed, rank] : {std::pair{all, 0}, std::pair{all, 9}, std::pair{one, 12}}) {
      EXPECT_EQ(parsed.has(rank, Stream::kOutput), output[mask]) << mask;
      EXPECT_EQ(parsed.has(rank, Stream::kErrors), errors[mask]) << mask;
    }
    EXPECT_FALSE(one.has(1, Stream::kOutput));
    EXPECT_EQ(all.empty(), mask == 0);
  }
  const auto both = StreamMask::parse("--tee", "0:1,1:1");
  EXPECT_TRUE(both.has(0, Stream::kOutput) && both.has(1, Stream::kOutput));
  EXPECT_FALSE(both.has(0, Stream::kErrors) || both.has(2, Stream::kOutput));
}

TEST(StreamMask, RefusesWhatIsNeither) {
  for (const char* bad : {"0:1,", "11", "0:1,1", "1,0:1", "", "4", "0:4", ":1", "a", "0:1 ,1:1"}) {
    EXPECT_THROW(StreamMask::parse("--redirects", bad), InvalidArgument) << bad;
  }
}

TEST(OutputPlan, ShowsAllRanksWithAPrefixByDefault) {
  const Route route = route_of({}, 1, 5, 4, Stream::kOutput);
  EXPECT_TRUE(route.shown);
  EXPECT_EQ(route.file, "");
  EXPECT_EQ(route.prefix, "[rank ${rank}] ");
}

TEST(OutputPlan, LeavesTheLinesOfASingleShownRankUnchanged) {
  OutputOptions options;
  EXPECT_EQ(route_of(options, 0, 0, 1, Stream::kOutput).prefix, "");
  options.shown_ranks = {1};
  EXPECT_EQ(route_of(options, 1, 1, 4, Stream::kOutput).prefix, "");
  EXPECT_FALSE(route_of(options, 0, 0, 4, Stream::kOutput).shown);
}

TEST(OutputPlan, KeepsBothStreamsOfARankInOneFileWithoutMasks) {
  OutputOptions options;
  options.log_dir = "logs";
  EXPECT_EQ(route_of(options, 1, 5, 4, Stream::kOutput).file, "logs/rank-5.log");
  EXPECT_EQ(route_of(options, 1, 5, 4, Stream::kErrors).file, "logs/rank-5.log");
  EXPECT_EQ(message_log_of(options, 0, 4), "");
  options.first_inherits = true;
  EXPECT_EQ(route_of(options, 0, 4, 4, Stream::kErrors).file, "");
  EXPECT_EQ(message_log_of(options, 0, 4), "logs/rank-4.log");
  EXPECT_EQ(message_log_of(options, 1, 5), "") << "it has a log of its output";
}

TEST(OutputPlan, MasksDecideForEachStream) {
  OutputOptions options;
  options.log_dir = "logs";
  options.redirects = StreamMask::parse("", "0:2");
  options.tee = StreamMask::parse("", "0:1,1:2");
  const auto expect = [&](int rank, Stream stream, bool shown, const std::string& file) {
    const Route route = route_of(options, rank, rank, 2, stream);
    EXPECT_EQ(route.shown, shown) << file;
    EXPECT_EQ(route.file, file);
  };
  expect(0, Stream::kOutput, true, "logs/rank-0.stdout.log");
  expect(0, Stream::kErrors, false, "logs/rank-0.stderr.log");
  expect(1, Stream::kOutput, true, "");
  expect(1, Stream::kErrors, true, "logs/rank-1.stderr.log");
}

TEST(OutputPlan, FillsThePrefix) {
  EXPECT_EQ(
      fill_prefix("[${role_name}${local_rank}/${rank}]:${rank}", 7, 3, "worker"), "[worker3/7]:7");
}

TEST(OutputPlan, MakesALogFolderAndRefusesOneThatIsAFileOrNotEmpty) {
  const lockstep::testing::TemporaryFolder temporary;
  const std::string folder = temporary.str();
  EXPECT_NO_THROW(check_log_dir(folder));
  EXPECT_NO_THROW(check_log_dir(""));
  const std::string missing = folder + "/new/logs";
  EXPECT_NO_THROW(check_log_dir(missing));
  EXPECT_TRUE(std::filesystem::is_directory(missing));
  std::ofstream(folder + "/file") << "text";
  EXPECT_THROW(check_log_dir(folder + "/file"), InvalidArgument);
  EXPECT_THROW(check_log_dir(folder), InvalidArgument);
  EXPECT_NO_THROW(check_log_dir(folder, true)) << "its logs are continued";
  EXPECT_THROW(check_log_dir(folder + "/file", true), InvalidArgument);
  EXPECT_THROW(check_log_dir(folder + "/file/logs"), InvalidArgument);
}

using ::testing::ElementsAre;

TEST(LineBuffer, GivesWholeLinesOnly) {
  LineBuffer lines;
  EXPECT_EQ(lines.take("a"), "");
  EXPECT_EQ(lines.take("b\nc\nd"), "ab\nc\n");
  EXPECT_EQ(lines.take("\n"), "d\n");
  EXPECT_EQ(lines.rest(), "");
  EXPECT_EQ(lines.take("end"), "");
  EXPECT_EQ(lines.rest(), "end\n");
}

TEST(LineBuffer, DoesNotCollectAnEndlessLine) {
  LineBuffer lines;
  std::size_t given = 0;
  for (int i = 0; i < 100; ++i) given += lines.take(std::string(10000, 'x')).size();
  EXPECT_GT(given, 900000U);
}

TEST(LineBuffer, KnowsAProgressBarBeforeItsEnd) {
  LineBuffer lines;
  lines.take("no bar yet");
  EXPECT_EQ(lines.bar(), "");
  lines.take("\r10 %\r50 %");
  EXPECT_EQ(lines.bar(), "50 %");
  EXPECT_EQ(lines.take("\r100 %\n"), "no bar yet\r10 %\r50 %\r100 %\n");
  EXPECT_EQ(lines.bar(), "");
}

TEST(Prefixed, ShowsOfAProgressBarWhatIsVisible) {
  EXPECT_EQ(prefixed("10 %\r50 %\nwindows\r\n", "[rank 1] "), "[rank 1] 50 %\n[rank 1] windows\n");
}

TEST(Prefixed, PutsThePrefixBeforeEachLine) {
  EXPECT_EQ(prefixed("a\n\nb\n", "[rank 1] "), "[rank 1] a\n[rank 1] \n[rank 1] b\n");
  EXPECT_EQ(prefixed("", "x"), "");
}

TEST(Tail, RemembersTheLastLines) {
  Tail tail;
  EXPECT_TRUE(tail.lines().empty());
  tail.take("\n");
  tail.take("a\n");
  EXPECT_THAT(tail.lines(), ElementsAre("", "a"));
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  tail.take(text);
  EXPECT_EQ(tail.lines().size(), 20U);
  EXPECT_EQ(tail.lines().front(), "line 980");
  tail.take("last\n");
  EXPECT_EQ(tail.lines().front(), "line 981");
  EXPECT_EQ(tail.lines().back(), "last");
}

TEST(Tail, KeepsOfAProgressBarWhatIsVisible) {
  Tail tail;
  tail.take("10 %\r50 %\r100 %\n");
  tail.take("windows\r\n");
  tail.take(std::string(2000, 'x') + "\n");
  EXPECT_THAT(tail.lines(), ElementsAre("100 %", "windows", std::string(500, 'x')));
}

TEST(Console, NeverWaitsForItsReaderAndLosesNothing) {
  const Pipe output = make_pipe(), errors = make_pipe();
  Console console(output.writer.get(), errors.writer.get());
  std::string expected;
  while (console.has_room()) {
    const std::string line = "line " + std::to_string(expected.size()) + "\n";
    expected += line;
    console.write(Stream::kOutput, line);
  }
  std::string found;
  char bytes[5000];
  while (found.size() < expected.size()) {
    const ssize_t size = ::read(output.reader.get(), bytes, sizeof(bytes));
    ASSERT_GT(size, 0);
    found.append(bytes, static_cast<std::size_t>(size));
    console.flush();
  }
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(console.empty());
}

TEST(Console, DropsTheTextWhenTheReaderIsGone) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  Pipe output = make_pipe(), errors = make_pipe();
  output.reader.reset();
  Console console(output.writer.get(), errors.writer.get());
  console.write(Stream::kOutput, "text");
  EXPECT_TRUE(console.empty());
  ::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace lockstep::launch
