// Sets to look at: colours as pixels, colours beyond them, and one with a sample that cannot be
// read.

#include <stdexcept>

#include <torch/torch.h>

#include "lockstep/nn/models/plugin.h"
#include "lockstep/nn/models/plugin_tensors.h"

namespace {

lockstep::nn::PluginSet colours(double scale) {
  const auto samples = scale * torch::linspace(0, 1, 8 * 3 * 4 * 6).view({8, 3, 4, 6});
  return lockstep::nn::set_of(samples, torch::arange(8) % 2);
}

lockstep::nn::PluginSet unreadable() {
  auto set = colours(1);
  const auto read = set.read;
  set.read = [read](std::int64_t index, std::span<float> numbers) {
    if (index == 2) throw std::runtime_error("no such sample here");
    read(index, numbers);
  };
  return set;
}

}  // namespace

LOCKSTEP_DATA("colours", [](const std::string&) {
  return lockstep::nn::PluginParts{.train = colours(1), .test = colours(1)};
})
LOCKSTEP_DATA("beyond", [](const std::string&) {
  return lockstep::nn::PluginParts{.train = colours(5), .test = colours(5)};
})
LOCKSTEP_DATA("unreadable", [](const std::string&) {
  return lockstep::nn::PluginParts{.train = unreadable(), .test = unreadable()};
})
