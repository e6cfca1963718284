#include "lockstep/parallel/schedule/bucket.h"

#include <algorithm>
#include <numeric>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct OpenBucket {
  std::uint64_t kind = 0;
  std::vector<std::size_t> parameters = {};
  std::size_t bytes = 0;
  std::size_t limit_index = 0;
};

OpenBucket& open_bucket_for(std::vector<OpenBucket>& open, const ParameterShape& parameter) {
  const auto found = std::find_if(open.begin(), open.end(),
      [&](const OpenBucket& bucket) { return bucket.kind == parameter.kind; });
  if (found != open.end()) return *found;
  return open.emplace_back(OpenBucket{parameter.kind});
}

}  // namespace

std::vector<BucketPlan> cut_buckets(const std::vector<ParameterShape>& parameters,
    const std::vector<std::size_t>& order, const std::vector<std::size_t>& limits) {
  check(!limits.empty(), "cut_buckets: at least one limit is needed");
  check(order.size() == parameters.size(), "cut_buckets: the order must name every parameter once");
  std::vector<BucketPlan> closed;
  std::vector<OpenBucket> open;
  for (const std::size_t index : order) {
    if (parameters.at(index).sparse) {
      closed.push_back({{index}, 0});
      continue;
    }
    OpenBucket& bucket = open_bucket_for(open, parameters.at(index));
    bucket.parameters.push_back(index);
    bucket.bytes += parameters[index].bytes;
    const std::size_t limit = limits[bucket.limit_index];
    if (bucket.bytes < limit) continue;
    closed.push_back({std::move(bucket.parameters), limit});
    bucket.parameters.clear();
    bucket.bytes = 0;
    bucket.limit_index = std::min(bucket.limit_index + 1, limits.size() - 1);
  }
  for (OpenBucket& bucket : open) {
    if (!bucket.parameters.empty())
      closed.push_back({std::move(bucket.parameters), limits[bucket.limit_index]});
  }
  return closed;
}

std::vector<std::size_t> reverse_order(std::size_t size) {
  std::vector<std::size_t> order(size);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

}  // namespace lockstep
