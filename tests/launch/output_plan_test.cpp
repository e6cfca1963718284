#include <fstream>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/launch/output/worker_output.h"

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

}  // namespace
}  // namespace lockstep::launch
