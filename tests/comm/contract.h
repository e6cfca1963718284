#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <initializer_list>
#include <string>
#include <tuple>
#include <vector>

#include "group_factory.h"
#include "tests/support/places.h"
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

/// Ranks on several hosts: as many on each, more on one, and not in the order of the hosts.
inline const auto kHosts =
    ::testing::Values(ContractParameters{"hosts_0011", 4}, ContractParameters{"hosts_011", 3},
        ContractParameters{"hosts_0001", 4}, ContractParameters{"hosts_0110", 4});

/// Returns the groups of these sizes, connected by each backend that this program can make; a rank
/// alone has none, so there is one group of it.
inline std::vector<ContractParameters> groups_of(std::initializer_list<int> sizes) {
  std::vector<ContractParameters> groups;
  for (const std::string& backend : backends_to_test())
    for (const int size : sizes)
      if (size > 1 || backend == backends_to_test().front()) groups.emplace_back(backend, size);
  return groups;
}

inline std::string contract_name(const ::testing::TestParamInfo<ContractParameters>& parameters) {
  return std::get<0>(parameters.param) + "_" + std::to_string(std::get<1>(parameters.param));
}

/// Returns whether so many elements show nothing more here: emulated devices carry each tensor
/// whole.
inline bool shows_nothing_more(std::int64_t elements) {
  return on_devices() && device_type() == torch::kPrivateUse1 && elements > 100'000;
}

/// The element types that every group reduces.
inline constexpr at::ScalarType kNumberTypes[] = {torch::kFloat, torch::kDouble, torch::kHalf,
    torch::kBFloat16, torch::kInt8, torch::kUInt8, torch::kShort, torch::kInt, torch::kLong};

}  // namespace lockstep::testing
