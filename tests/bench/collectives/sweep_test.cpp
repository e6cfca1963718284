#include "bench/collectives/sweep.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::complaint_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SweepLine line() {
  return {.collective = Collective::kAllReduce,
      .backend = "shm",
      .group_memory = true,
      .ranks = 4,
      .bytes = 1000,
      .calls = 7,
      .seconds = {2e-6, 1e-6, 4e-6},
      .copy_seconds = {5e-7, 6e-7, 7e-7},
      .checked = true};
}

TEST(Collective, HasTheFactorsOfNcclTests) {
  const auto factor = [](const char* name, int ranks) {
    return bus_factor(*find_collective(name), ranks);
  };
  EXPECT_DOUBLE_EQ(factor("all_reduce", 2), 1);
  EXPECT_DOUBLE_EQ(factor("all_reduce", 8), 1.75);
  EXPECT_DOUBLE_EQ(factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(factor("all_to_all", 4), 0.75);
  EXPECT_DOUBLE_EQ(factor("broadcast", 4), 1);
  EXPECT_DOUBLE_EQ(factor("reduce", 4), 1);
  EXPECT_FALSE(find_collective("barrier"));
}

// Counted by hand for two ranks and a message of 12 numbers: numbers that one rank reads and
// writes.
TEST(Collective, TakesAtLeastThisPartOfACopy) {
  const auto share = [](const char* name) { return copy_share(*find_collective(name), 2); };
  const double copy = 12 + 12;
  EXPECT_DOUBLE_EQ(share("all_reduce"), (2 * 6 + 2 * 6) / copy);
  EXPECT_DOUBLE_EQ(share("reduce"), (2 * 6 + 6) / copy);
  EXPECT_DOUBLE_EQ(share("reduce_scatter"), (2 * 6 + 6) / copy);
  EXPECT_DOUBLE_EQ(share("broadcast"), (6 + 6) / copy) << "the root helps";
  EXPECT_DOUBLE_EQ(share("all_gather"), (12 + 12) / copy);
  EXPECT_DOUBLE_EQ(share("all_to_all"), (12 + 12) / copy);
}

TEST(Sweep, GrowsByTheFactorInWholeNumbersForEachRank) {
  Sweep sweep{.min_bytes = 1024, .max_bytes = 65536, .factor = 4};
  EXPECT_THAT(message_sizes(sweep, 2), ElementsAre(1024, 4096, 16384, 65536));
  EXPECT_THAT(message_sizes(sweep, 3), ElementsAre(1020, 4092, 16380, 65532));
  sweep.max_bytes = 65535;
  EXPECT_EQ(message_sizes(sweep, 2).back(), 16384);
}

TEST(Sweep, RefusesWhatCannotBeMeasured) {
  const auto refused = [](const Sweep& sweep, int ranks = 2) {
    return complaint_of<Error>([&] { check_sweep(sweep, ranks); });
  };
  EXPECT_EQ(refused({}), "");
  EXPECT_THAT(refused({}, 1), HasSubstr("--nproc-per-node 2"));
  EXPECT_THAT(refused({.min_bytes = 8}, 4), HasSubstr("--min-bytes"));
  EXPECT_THAT(refused({.max_bytes = 512}), HasSubstr("--max-bytes"));
  EXPECT_THAT(refused({.max_bytes = std::int64_t{1} << 37}), HasSubstr("--max-bytes"));
  EXPECT_THAT(refused({.factor = 1}), HasSubstr("--factor"));
  EXPECT_THAT(refused({.warmup = 0}), HasSubstr("--warmup"));
  EXPECT_THAT(refused({.iterations = 0}), HasSubstr("--iterations"));
  EXPECT_THAT(refused({.collectives = {}}), HasSubstr("--op"));
  EXPECT_THAT(
      refused({.collectives = {Collective::kReduce, Collective::kReduce}}), HasSubstr("twice"));
  EXPECT_THAT(refused({.backends = {"gloo", "gloo"}}), HasSubstr("twice"));
  EXPECT_THAT(refused({.backends = {"shm", "threads"}}), HasSubstr("command of its own"));
  EXPECT_THAT(refused({.backends = {"hierarchical", "gloo"}}), HasSubstr("keeps the port"));
  EXPECT_EQ(refused({.backends = {"hierarchical"}}), "");
  EXPECT_EQ(refused({.backends = {"threads"}}), "");
}

TEST(SweepLine, GivesMediansAndBandwidths) {
  EXPECT_DOUBLE_EQ(line().median_seconds(), 2e-6);
  EXPECT_DOUBLE_EQ(line().median_copy_seconds(), 6e-7);
  EXPECT_DOUBLE_EQ(line().algorithm_bandwidth(), 5e8);
  EXPECT_DOUBLE_EQ(line().bus_bandwidth(), 7.5e8);
}

TEST(SweepLine, IsReadAsItWasWritten) {
  const std::string text = to_json(line());
  EXPECT_THAT(text, HasSubstr(R"("op":"all_reduce","backend":"shm","memory":"group","ranks":4)"));
  EXPECT_THAT(text, HasSubstr(R"("bus_bandwidth":750000000)"));
  const SweepLine again = parse_sweep_line(text, "here");
  EXPECT_EQ(to_json(again), text);
  SweepLine other = line();
  other.collective = Collective::kReduceScatter;
  other.group_memory = false;
  other.checked = false;
  other.core_seconds = 1e-6;
  EXPECT_EQ(to_json(parse_sweep_line(to_json(other), "here")), to_json(other));
}

TEST(SweepLine, RefusesWhatIsNone) {
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = to_json(line());
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return complaint_of<Error>([&] { parse_sweep_line(text, "there"); });
  };
  EXPECT_THAT(refused("all_reduce", "all_reduced"), HasSubstr("there: op"));
  EXPECT_THAT(refused("\"bytes\":1000", "\"bytes\":-1"), HasSubstr("bytes"));
  EXPECT_THAT(refused("\"ranks\":4,", ""), HasSubstr("must be there"));
  EXPECT_THAT(refused("[2e-06,", "[0,"), HasSubstr("repeat_seconds"));
  EXPECT_THAT(refused("\"copy_seconds\":[", "\"copy_seconds\":3,\"x\":["), HasSubstr("list"));
  EXPECT_THAT(refused("\"shm\"", "5"), HasSubstr("backend"));
  EXPECT_THAT(refused("\"calls\":7", "\"calls\":7,\"core_seconds\":-1"), HasSubstr("core_seconds"));
  EXPECT_THAT(complaint_of<Error>([] { parse_sweep_line("[]", "there"); }),
      HasSubstr("must be a JSON object"));
  EXPECT_THAT(
      complaint_of<Error>([] { read_sweep("/nowhere/file"); }), HasSubstr("cannot be opened"));
}

TEST(SweepLine, AFileNamesTheLineThatIsSpoiled) {
  const std::string path = ::testing::TempDir() + "sweep_test.jsonl";
  std::ofstream(path) << to_json(line()) << '\n' << to_json(line()) << '\n';
  EXPECT_EQ(read_sweep(path).size(), 2U);
  std::ofstream(path, std::ios::app) << "{\"v\":1}\n";
  EXPECT_THAT(complaint_of<Error>([&] { read_sweep(path); }), HasSubstr("line 3"));
  std::remove(path.c_str());
}

TEST(SweepTable, HasARowForEachResult) {
  const std::string text = sweep_table({line()});
  EXPECT_THAT(text, HasSubstr("bus [GB/s]"));
  EXPECT_THAT(text, HasSubstr("all_reduce  shm      group    1000      7         2.00"));
}

}  // namespace
}  // namespace lockstep::bench
