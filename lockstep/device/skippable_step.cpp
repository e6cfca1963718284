#include "lockstep/device/skippable_step.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/ops/stack.h>

namespace lockstep {
namespace {

using Counts = std::vector<StepsOnDevice*>;

std::map<std::string, Counts> unsettled_by_device(const torch::optim::Optimizer& optimizer) {
  std::map<std::string, Counts> counts;
  for (const auto& [parameter, state] : optimizer.state()) {
    auto* const steps = dynamic_cast<StepsOnDevice*>(state.get());
    if (steps != nullptr && steps->made.defined())
      counts[steps->made.device().str()].push_back(steps);
  }
  return counts;
}

// One copy for all parameters of a device.
void settle(const Counts& counts) {
  std::vector<torch::Tensor> made;
  for (const StepsOnDevice* count : counts) made.push_back(count->made);
  const torch::Tensor values = at::stack(made).cpu();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i]->set_steps(static_cast<std::int64_t>(values.const_data_ptr<float>()[i]));
    counts[i]->made.reset();
  }
}

}  // namespace

void settle_steps(const torch::optim::Optimizer& optimizer) {
  for (const auto& [device, counts] : unsettled_by_device(optimizer)) settle(counts);
}

}  // namespace lockstep
