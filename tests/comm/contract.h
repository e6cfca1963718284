#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <vector>

#include "group_factory.h"
#include <torch/types.h>

namespace lockstep::testing {

/// A backend's name and a number of ranks.
using ContractParameters = std::tuple<std::string, int>;

/// Runs each test on every rank of a group.
class Contract : public ::testing::TestWithParam<ContractParameters> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(ProcessGroup)>& body) const {
    run_group(std::get<0>(GetParam()), size(), body);
  }
};

inline std::string contract_name(const ::testing::TestParamInfo<ContractParameters>& parameters) {
  return std::get<0>(parameters.param) + "_" + std::to_string(std::get<1>(parameters.param));
}

/// The element types that every backend reduces.
inline const std::vector<at::ScalarType> kNumbers = {torch::kFloat, torch::kDouble, torch::kHalf,
    torch::kBFloat16, torch::kInt8, torch::kUInt8, torch::kShort, torch::kInt, torch::kLong};

}  // namespace lockstep::testing
