// A classifier of lines of text, whose samples are two tensors: the bytes of a line as whole
// numbers, and a mask that tells them from the padding behind them.
//
//     lockstep train --plugin ./lines.so --data lines:FOLDER --model line-classifier
//
// FOLDER has train.txt and test.txt; a line of them is a digit, its class, then a blank and text.

#include <fstream>
#include <lockstep/lockstep.h>

#include <torch/torch.h>

namespace {

constexpr std::int64_t kLongest = 32, kWidth = 32, kHeads = 4, kBytes = 256;

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (line.size() < 3 || line[0] < '0' || line[0] > '9' || line[1] != ' ')
      throw std::runtime_error(
          c10::str(path, ":", lines.size(), " must be a digit, a blank and text"));
  }
  return lines;
}

lockstep::nn::PluginSet classified(const std::string& path) {
  const auto lines = std::make_shared<const std::vector<std::string>>(lines_of(path));
  const auto line = [lines](std::int64_t i) { return (*lines)[static_cast<std::size_t>(i)]; };
  return {.size = std::ssize(*lines),
      .classes = 10,
      .label = [line](std::int64_t i) { return std::int64_t{line(i)[0]} - '0'; },
      .inputs = {{"bytes", {kLongest}, torch::kLong}, {"mask", {kLongest}}},
      .read_inputs =
          [line](std::int64_t i, const lockstep::nn::PluginSample& sample) {
            const std::string text = line(i).substr(2, kLongest);
            const auto bytes = sample.integers(0);
            const auto mask = sample.floats(1);
            for (std::size_t at = 0; at < bytes.size(); ++at) {
              bytes[at] = at < text.size() ? static_cast<std::uint8_t>(text[at]) : 0;
              mask[at] = at < text.size() ? 1.0F : 0.0F;
            }
          }};
}

// Bytes attend to those that are there; their mean is classified.
struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(std::int64_t classes) {
    using namespace torch::nn;
    embedding = register_module("embedding", Embedding(kBytes, kWidth));
    positions = register_parameter("positions", 0.02 * torch::randn({kLongest, kWidth}));
    projections = register_module("projections", Linear(kWidth, 3 * kWidth));
    output = register_module("output", Linear(kWidth, classes));
  }

  torch::Tensor forward(const torch::Tensor& bytes, const torch::Tensor& mask) {
    const torch::Tensor x = embedding(bytes) + positions;
    const auto heads =
        projections(x).view({-1, kLongest, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto bias = ((mask - 1) * 1e4).view({-1, 1, 1, kLongest}).to(heads.scalar_type());
    const auto mixed = torch::scaled_dot_product_attention(heads[0], heads[1], heads[2], bias);
    const auto all = x + mixed.transpose(1, 2).reshape({-1, kLongest, kWidth});
    return output((all * mask.unsqueeze(2)).sum(1) / mask.sum(1, /*keepdim=*/true));
  }

  torch::nn::Embedding embedding{nullptr};
  torch::Tensor positions;
  torch::nn::Linear projections{nullptr}, output{nullptr};
};

}  // namespace

LOCKSTEP_DATA("lines", [](const std::string& folder) {
  return lockstep::nn::PluginParts{
      classified(folder + "/train.txt"), classified(folder + "/test.txt")};
})

LOCKSTEP_MODEL("line-classifier",
    [](std::int64_t classes) { return std::make_shared<ClassifierImpl>(classes); })
