#include "serial_reference.h"

#include <torch/nn/modules/activation.h>

namespace lockstep::testing {

torch::nn::Sequential make_chain(const std::vector<std::int64_t>& widths) {
  torch::nn::Sequential net;
  for (std::size_t index = 0; index + 1 < widths.size(); ++index) {
    if (index > 0) net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Linear(widths[index], widths[index + 1]));
  }
  net->to(torch::kDouble);
  return net;
}

Problem make_problem(const std::vector<std::int64_t>& widths, std::int64_t batch) {
  torch::manual_seed(11);
  const auto net = make_chain(widths);
  return {net, copy_of(net), torch::randn({batch, widths.front()}, torch::kDouble),
      torch::randn({batch, widths.back()}, torch::kDouble)};
}

}  // namespace lockstep::testing
