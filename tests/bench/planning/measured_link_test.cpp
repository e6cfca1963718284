#include "bench/planning/measured_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/plan/collective_time.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

SweepLine all_reduce(std::int64_t bytes, double seconds, const char* backend = "gloo") {
  return {.backend = backend,
      .ranks = 4,
      .bytes = bytes,
      .seconds = {seconds, 2 * seconds, seconds / 2},
      .copy_seconds = {1e-6},
      .core_seconds = seconds / 4};
}

std::string refusal(const std::vector<SweepLine>& lines) {
  try {
    link_of_sweep(lines, "sweep.jsonl");
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MeasuredLink, GivesBackTheSecondsOfTheSweep) {
  const std::vector<SweepLine> lines{
      all_reduce(4096, 6e-3), all_reduce(1 << 20, 60e-3), all_reduce(64 << 20, 6)};
  const plan::Link link = link_of_sweep(lines, "sweep.jsonl");
  const plan::Machine machine{.nodes = 4, .places = 1, .between = link};
  for (const SweepLine& line : lines) {
    EXPECT_NEAR(plan::all_reduce_seconds(
                    static_cast<double>(line.bytes), {4, 1}, machine, plan::AllReduce::kRing),
        line.median_seconds(), 1e-9);
  }
  EXPECT_DOUBLE_EQ(link.latency, 1e-3);
  EXPECT_DOUBLE_EQ(link.bytes_per_second, (16 << 20) / 1.0);
  EXPECT_DOUBLE_EQ(link.core_share, 0.25);
  EXPECT_THAT(plan::text_of(link), HasSubstr(",1000us, measured"));
}

TEST(MeasuredLink, IsThatOfGloo) {
  const std::vector<SweepLine> lines{all_reduce(4096, 1, "shm"), all_reduce(8192, 2, "shm"),
      all_reduce(4096, 3), all_reduce(8192, 4)};
  EXPECT_DOUBLE_EQ(link_of_sweep(lines, "sweep.jsonl").latency, 0.5);
  EXPECT_EQ(link_of_sweep({lines[0], lines[1]}, "sweep.jsonl").latency, 1.0 / 6);
}

TEST(MeasuredLink, RefusesASweepThatHasNone) {
  EXPECT_THAT(refusal({}), HasSubstr("sweep.jsonl: has 0 backends"));
  EXPECT_THAT(refusal({all_reduce(4096, 1)}), HasSubstr("two sizes"));
  EXPECT_THAT(refusal({all_reduce(4096, 1), all_reduce(4096, 2)}), HasSubstr("twice"));
  EXPECT_THAT(refusal({all_reduce(4096, 1, "shm"), all_reduce(4096, 1, "nccl")}),
      HasSubstr("has 2 backends and no gloo"));
  SweepLine other = all_reduce(4096, 1);
  other.collective = Collective::kBroadcast;
  EXPECT_THAT(refusal({other, other}), HasSubstr("two sizes"));
}

}  // namespace
}  // namespace lockstep::bench
