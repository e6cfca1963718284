// The reducer's report.

#include "lockstep/parallel/ddp/reducer.h"

#include <gtest/gtest.h>

#include "tests/comm/group_factory.h"
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using torch::nn::Linear;

TEST(ReducerReport, TheHiddenShareIsWhatWasNotExposed) {
  ReducerReport report;
  EXPECT_EQ(report.hidden_share(), 0) << "nothing was sent";
  report.communication_seconds = 2;
  report.exposed_seconds = 0.5;
  EXPECT_EQ(report.hidden_share(), 0.75);
  report.exposed_seconds = 3;
  EXPECT_EQ(report.hidden_share(), 0);
}

TEST(ReducerReport, OneLineTellsAll) {
  const ReducerReport report{4, 2, std::size_t{3} << 19, true, true, 0.04, 0.01};
  EXPECT_EQ(report.to_string(),
      "4 passes, 2 buckets, 1.5 MiB a pass, rebuilt, 10.0 ms of communication a pass, 75 % of it "
      "hidden behind backward");
  EXPECT_EQ(ReducerReport{}.to_string(), "0 passes, 0 buckets, 0.0 MiB a pass, as first cut");
}

TEST(ReducerReport, CountsPassesBucketsAndBytes) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(10, 20);
    DistributedDataParallel model(
        net, group, DistributedDataParallelOptions().first_bucket_bytes(1).bucket_bytes(1));
    EXPECT_EQ(model.report().passes, 0);
    for (int step = 0; step < 3; ++step) model(torch::ones({1, 10})).sum().backward();
    const ReducerReport report = model.report();
    EXPECT_EQ(report.passes, 3);
    EXPECT_EQ(report.buckets, 2u);
    EXPECT_EQ(report.bytes, (200u + 20u) * 4u);
    EXPECT_TRUE(report.rebuilt);
    EXPECT_TRUE(report.graph_is_static);
    EXPECT_GT(report.communication_seconds, 0);
    EXPECT_GT(report.exposed_seconds, 0);
    EXPECT_EQ(report.exposed_seconds, model.communication_seconds());
    {
      auto accumulate = model.no_sync();
      model(torch::ones({1, 10})).sum().backward();
    }
    EXPECT_EQ(model.report().passes, 3) << "without synchronisation there is no pass";
  });
}

TEST(ReducerReport, LeavesOutThePassesOfOthers) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(10, 20);
    DistributedDataParallel model(net, group);
    ReducerReport at_end;
    model.join([&] {
      for (int step = 0; step < 1 + 2 * group.rank(); ++step)
        model(torch::ones({1, 10})).sum().backward();
      at_end = model.report();
    });
    EXPECT_EQ(model.report().passes, group.rank() == 0 ? 1 : 3);
    EXPECT_EQ(model.report().exposed_seconds, at_end.exposed_seconds);
    EXPECT_EQ(model.report().communication_seconds, at_end.communication_seconds);
  });
}

}  // namespace
}  // namespace lockstep
