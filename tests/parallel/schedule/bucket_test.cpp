// Bucket assignment, rows B1 to B6 of the conformance cases (measured with PyTorch 2.11; the first
// four are asserted in its test_c10d_common.py).

#include "lockstep/parallel/schedule/bucket.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::vector<std::size_t>>;
using Limits = std::vector<std::size_t>;

enum : std::uint64_t { kFloat, kDouble, kFloatElsewhere };

ParameterShape floats(std::size_t elements) { return {elements * 4, kFloat}; }
ParameterShape doubles(std::size_t elements) { return {elements * 8, kDouble}; }

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

TEST(Bucket, B1ToB6AreCutByTypeSizeAndLimit) {
  ParameterShape sparse = floats(10);
  sparse.sparse = true;
  const std::vector<ParameterShape> mixed = {
      floats(50), doubles(25), floats(50), doubles(25), floats(50), doubles(25)};
  struct Case {
    const char* name;
    std::vector<ParameterShape> shapes;
    std::vector<std::size_t> limits;
    Indices buckets;
    Limits limits_of_buckets;
  };
  const Case cases[] = {
      {"every tensor reaches the limit", {floats(100), floats(200), floats(100), floats(50)}, {400},
          {{0}, {1}, {2}, {3}}, {400, 400, 400, 400}},
      {"types do not mix", mixed, {400}, {{0, 2}, {1, 3}, {4}, {5}}, {400, 400, 400, 400}},
      {"the first limit serves once", {floats(10), floats(10), floats(10), floats(10)}, {40, 80},
          {{0}, {1, 2}, {3}}, {40, 80, 80}},
      {"limits advance per type", mixed, {200, 400}, {{0}, {1}, {2, 4}, {3, 5}},
          {200, 200, 400, 400}},
      {"a bucket closes when it reaches its limit", {floats(60), floats(60), floats(60)}, {400},
          {{0, 1}, {2}}, {400, 400}},
      {"after a large tensor", {floats(1000), floats(1), floats(1)}, {400}, {{0}, {1, 2}},
          {400, 400}},
      {"a sparse gradient is a bucket of its own", {floats(10), sparse, floats(10)}, {80},
          {{0, 2}, {1}}, {80, 0}}};
  for (const Case& each : cases)
    EXPECT_EQ(cut(each.shapes, each.limits), std::pair(each.buckets, each.limits_of_buckets))
        << each.name;
}

TEST(Bucket, FollowTheOrderGiven) {
  const auto buckets = cut_buckets({floats(10), floats(10), floats(10)}, {2, 1, 0}, {80});
  EXPECT_EQ(buckets[0].parameters, (std::vector<std::size_t>{2, 1}));
  EXPECT_EQ(buckets[1].parameters, (std::vector<std::size_t>{0}));
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
  const ParameterShape far{40, kFloatElsewhere};
  EXPECT_EQ(cut({floats(10), far, floats(10)}, {1000}).first, (Indices{{0, 2}, {1}}));
}

TEST(Bucket, BadArgumentsAreRefused) {
  EXPECT_THROW(cut_buckets({floats(1)}, {0}, {}), InvalidArgument);
  EXPECT_THROW(cut_buckets({floats(1)}, {}, {400}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
