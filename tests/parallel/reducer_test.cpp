// Bucket assignment, rows B1 to B6 of the conformance cases (measured with PyTorch 2.11; the first
// four are asserted in its test_c10d_common.py).
// The reducer's report.

#include "lockstep/parallel/ddp/reducer.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/comm/group_factory.h"
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/bucket.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::vector<std::size_t>>;
using Limits = std::vector<std::size_t>;
using torch::nn::Linear;

ParameterShape floats(std::size_t elements) { return {elements * 4, at::kFloat, c10::kCPU}; }
ParameterShape doubles(std::size_t elements) { return {elements * 8, at::kDouble, c10::kCPU}; }

// PyTorch orders the buckets by their first index when no order was given.
std::pair<Indices, std::vector<std::size_t>> cut(
    const std::vector<ParameterShape>& shapes, const std::vector<std::size_t>& limits) {
  std::vector<std::size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), 0);
  auto plans = cut_buckets(shapes, order, limits);
  std::sort(plans.begin(), plans.end(),
      [](const auto& a, const auto& b) { return a.parameters[0] < b.parameters[0]; });
  std::pair<Indices, std::vector<std::size_t>> result;
  for (const BucketPlan& plan : plans) {
    result.first.push_back(plan.parameters);
    result.second.push_back(plan.limit);
  }
  return result;
}

TEST(Bucket, B1EveryTensorReachesTheLimit) {
  const auto [buckets, limits] = cut({floats(100), floats(200), floats(100), floats(50)}, {400});
  EXPECT_EQ(buckets, (Indices{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(limits, (Limits{400, 400, 400, 400}));
}

TEST(Bucket, B2TypesDoNotMix) {
  const auto [buckets, limits] =
      cut({floats(50), doubles(25), floats(50), doubles(25), floats(50), doubles(25)}, {400});
  EXPECT_EQ(buckets, (Indices{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(limits, (Limits{400, 400, 400, 400}));
}

TEST(Bucket, B3TheFirstLimitServesOnce) {
  const auto [buckets, limits] = cut({floats(10), floats(10), floats(10), floats(10)}, {40, 80});
  EXPECT_EQ(buckets, (Indices{{0}, {1, 2}, {3}}));
  EXPECT_EQ(limits, (Limits{40, 80, 80}));
}

TEST(Bucket, B4LimitsAdvancePerType) {
  const auto [buckets, limits] =
      cut({floats(50), doubles(25), floats(50), doubles(25), floats(50), doubles(25)}, {200, 400});
  EXPECT_EQ(buckets, (Indices{{0}, {1}, {2, 4}, {3, 5}}));
  EXPECT_EQ(limits, (Limits{200, 200, 400, 400}));
}

TEST(Bucket, B5ABucketClosesWhenItReachesItsLimit) {
  EXPECT_EQ(cut({floats(60), floats(60), floats(60)}, {400}).first, (Indices{{0, 1}, {2}}));
  EXPECT_EQ(cut({floats(1000), floats(1), floats(1)}, {400}).first, (Indices{{0}, {1, 2}}));
}

TEST(Bucket, B6ASparseGradientIsABucketOfItsOwn) {
  ParameterShape sparse = floats(10);
  sparse.sparse = true;
  const auto [buckets, limits] = cut({floats(10), sparse, floats(10)}, {80});
  EXPECT_EQ(buckets, (Indices{{0, 2}, {1}}));
  EXPECT_EQ(limits, (Limits{80, 0}));

  const auto explicit_order = cut_buckets({floats(10), floats(10), floats(10)}, {2, 1, 0}, {80});
  EXPECT_EQ(explicit_order[0].parameters, (std::vector<std::size_t>{2, 1}));
  EXPECT_EQ(explicit_order[1].parameters, (std::vector<std::size_t>{0}));
}

TEST(Bucket, ThirtyLayersAsPyTorchMeasured) {
  const std::vector<ParameterShape> layers(30, ParameterShape{1'440'000});
  const auto plans =
      cut_buckets(layers, reverse_order(30), {std::size_t{1} << 20, std::size_t{25} << 20});
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[0].parameters, (std::vector<std::size_t>{29}));
  EXPECT_EQ(plans[1].parameters.size(), 19u);
  EXPECT_EQ(plans[2].parameters.size(), 10u);
}

TEST(Bucket, DevicesDoNotMix) {
  const ParameterShape far{40, at::kFloat, c10::Device(c10::kCUDA, 1)};
  EXPECT_EQ(cut({floats(10), far, floats(10)}, {1000}).first, (Indices{{0, 2}, {1}}));
}

TEST(Bucket, BadArgumentsAreRefused) {
  EXPECT_THROW(cut_buckets({floats(1)}, {0}, {}), InvalidArgument);
  EXPECT_THROW(cut_buckets({floats(1)}, {}, {400}), InvalidArgument);
}

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
