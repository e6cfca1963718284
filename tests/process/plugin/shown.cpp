// Sets to look at: colours as pixels, colours beyond them, one with a sample that cannot be read,
// and samples of a table and a picture, with a net for them; words alone, with a chain.

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

// The class is the first number; the second input has the name that is asked for.
lockstep::nn::PluginSet tables(const std::string& name) {
  const auto numbers = 1000000 * torch::arange(40).view({8, 5}) + torch::arange(8).view({8, 1}) % 2;
  const auto pictures = torch::linspace(-1, 1, 8 * 4 * 6).view({8, 1, 4, 6});
  return lockstep::nn::set_of(
      {{"numbers", numbers}, {name.empty() ? "picture" : name, pictures}}, torch::arange(8) % 2);
}

struct TableNetImpl : torch::nn::Module {
  explicit TableNetImpl(std::int64_t classes)
      : line(register_module("line", torch::nn::Linear(5 + 24, classes))) {}
  torch::Tensor forward(const torch::Tensor& numbers, const torch::Tensor& picture) {
    return line(torch::cat({(numbers % 2).to(picture.dtype()), picture.flatten(1)}, 1));
  }
  torch::nn::Linear line;
};

lockstep::nn::PluginSet words() {
  const auto ids = (torch::arange(64).view({64, 1}) + torch::arange(6)) % 16;
  return lockstep::nn::set_of({{"words", ids}}, torch::arange(64) % 4);
}

torch::nn::Sequential word_chain(std::int64_t classes) {
  using namespace torch::nn;
  return Sequential(Embedding(16, 8), Flatten(), Linear(48, 16), ReLU(), Linear(16, classes));
}

}  // namespace

LOCKSTEP_DATA("tables", [](const std::string& name) {
  return lockstep::nn::PluginParts{.train = tables(name), .test = tables(name)};
})
LOCKSTEP_MODEL(
    "table-net", [](std::int64_t classes) { return std::make_shared<TableNetImpl>(classes); })
LOCKSTEP_DATA("words",
    [](const std::string&) { return lockstep::nn::PluginParts{.train = words(), .test = words()}; })
LOCKSTEP_MODEL("word-chain", word_chain)
LOCKSTEP_DATA("colours", [](const std::string&) {
  return lockstep::nn::PluginParts{.train = colours(1), .test = colours(1)};
})
LOCKSTEP_DATA("beyond", [](const std::string&) {
  return lockstep::nn::PluginParts{.train = colours(5), .test = colours(5)};
})
LOCKSTEP_DATA("unreadable", [](const std::string&) {
  return lockstep::nn::PluginParts{.train = unreadable(), .test = unreadable()};
})
