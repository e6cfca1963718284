#include "bench/collectives/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>

#include "tests/support/message_of.h"

#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

/// Carries everything well but for one number of the result of one rank.
class SpoilingBackend : public ThreadBackend {
 public:
  using ThreadBackend::ThreadBackend;

  Work begin(const CollectiveCall& call) override {
    Work work = ThreadBackend::begin(call);
    if (call.is_message() || call.kind == Operation::kBarrier) return work;
    return spoil(call.output.defined() ? call.output : call.input, std::move(work));
  }

 private:
  Work spoil(const torch::Tensor& result, Work work) {
    work.wait();
    const bool of_a_message = result.scalar_type() == torch::kFloat;
    if (rank() == 1 && of_a_message) result.data_ptr<float>()[result.numel() - 1] += 1;
    return {};
  }
};

std::vector<Collective> all() {
  std::vector<Collective> collectives;
  for (const auto& each : names_of(Collective{})) collectives.push_back(each.value);
  return collectives;
}

// What ranks of threads find wrong; empty if all is well.
std::string fault_of(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  return lockstep::testing::complaint_of<Error>([&] { run_ranks(ranks, body); });
}

TEST(Operands, EveryCollectiveIsRightInBothKindsOfMemory) {
  for (const int ranks : {2, 3}) {
    for (const bool group_memory : {false, true}) {
      const std::string fault = fault_of(ranks, [&](const ProcessGroup& world) {
        for (const Collective collective : all()) {
          Operands(collective, world, 12 * ranks, group_memory).check();
          Operands(collective, world, 40'000 * ranks, group_memory).check();
        }
      });
      EXPECT_EQ(fault, "");
    }
  }
}

TEST(Operands, AWrongNumberIsFoundInEveryCollective) {
  for (const Collective collective : all()) {
    const auto region = ThreadBackend::make_region(2);
    const std::string fault = fault_of(2, [&](const ProcessGroup& world) {
      const ProcessGroup wrong(std::make_shared<SpoilingBackend>(region, world.rank()));
      Operands(collective, wrong, 4000, false).check();
    });
    EXPECT_THAT(fault, HasSubstr(concat("a wrong result of ", name_of(collective)))) << fault;
    EXPECT_THAT(fault, HasSubstr("rank 1: element ")) << fault;
  }
}

TEST(Measure, GivesALineForEachCollectiveSizeAndGroup) {
  const Sweep sweep{.collectives = {Collective::kAllReduce, Collective::kAllGather},
      .backends = {"threads"},
      .min_bytes = 1024,
      .max_bytes = 4096,
      .warmup = 1,
      .iterations = 3};
  std::mutex mutex;
  std::vector<std::vector<std::string>> of_ranks;
  std::vector<SweepLine> lines;
  run_ranks(2, [&](const ProcessGroup& world) {
    std::vector<std::string> told;
    const auto measured = measure(
        sweep, {world, world}, [&](const SweepLine& line) { told.push_back(to_json(line)); });
    const std::lock_guard lock(mutex);
    of_ranks.push_back(told);
    lines = measured;
  });
  ASSERT_EQ(lines.size(), 8U) << "two collectives, two sizes, two groups";
  EXPECT_EQ(of_ranks.at(0), of_ranks.at(1)) << "all ranks know the same";
  ASSERT_EQ(of_ranks.at(0).size(), 8U);
  EXPECT_EQ(of_ranks.at(0).back(), to_json(lines.back()));
  for (const SweepLine& line : lines) {
    EXPECT_EQ(line.backend, "threads");
    EXPECT_EQ(line.ranks, 2);
    EXPECT_EQ(line.seconds.size(), 3U);
    EXPECT_EQ(line.copy_seconds.size(), 3U);
    EXPECT_GT(line.median_seconds(), 0);
    EXPECT_GT(line.median_copy_seconds(), 0);
    EXPECT_TRUE(line.checked);
  }
  EXPECT_EQ(lines.at(0).bytes, 1024);
  EXPECT_EQ(lines.at(7).bytes, 4096);
  EXPECT_EQ(lines.at(7).collective, Collective::kAllGather);
}

TEST(Measure, ChecksUnlessItIsNotTo) {
  Sweep sweep{.backends = {"threads"}, .max_bytes = 1024, .warmup = 1, .iterations = 1};
  const auto fault = [&] {
    const auto region = ThreadBackend::make_region(2);
    return fault_of(2, [&](const ProcessGroup& world) {
      const ProcessGroup wrong(std::make_shared<SpoilingBackend>(region, world.rank()));
      try {
        EXPECT_FALSE(measure(sweep, {wrong}).front().checked);
      } catch (const std::exception& error) {
        wrong.abort(error.what());  // so that the other rank does not wait for this one
        throw;
      }
    });
  };
  EXPECT_THAT(fault(), HasSubstr("a wrong result of all_reduce"));
  sweep.check = false;
  EXPECT_EQ(fault(), "");
}

}  // namespace
}  // namespace lockstep::bench
