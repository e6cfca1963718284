#pragma once

#include <gtest/gtest.h>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep::testing {

inline torch::Tensor constant(const std::vector<std::int64_t>& shape, double value) {
  return torch::full(shape, value, torch::kFloat);
}

/// Expects the same bits on every rank.
inline void expect_same_on_all_ranks(const torch::Tensor& tensor, const ProcessGroup& group) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), group.size());
  const torch::Tensor all = torch::empty(shape, tensor.options());
  group.all_gather(all, tensor.detach()).wait();
  for (int rank = 1; rank < group.size(); ++rank) EXPECT_TRUE(torch::equal(all[rank], all[0]));
}

}  // namespace lockstep::testing
