// A language model on bytes: a data set of any text file, and a small transformer that tells the
// byte after the 64 before it.
//
//     lockstep train --plugin ./text.so --data text:FOLDER --model byte-transformer
//
// FOLDER has train.txt and test.txt.

#include <fstream>
#include <iterator>
#include <lockstep/lockstep.h>

#include <torch/torch.h>

namespace {

constexpr std::int64_t kContext = 64, kWidth = 64, kHeads = 4, kBytes = 256;

// A sample begins every kStride bytes.
lockstep::nn::PluginSet windows_of(const std::string& path) {
  constexpr std::int64_t kStride = 8;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const auto text = std::make_shared<const std::string>(
      std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (std::ssize(*text) <= kContext) throw std::runtime_error(path + " has less than 65 bytes");
  const auto byte_at = [text](std::int64_t at) {
    return static_cast<std::uint8_t>((*text)[static_cast<std::size_t>(at)]);
  };
  return {.size = (std::ssize(*text) - kContext - 1) / kStride + 1,
      .classes = kBytes,
      .shape = {1, 1, kContext},
      .label = [byte_at](std::int64_t i) { return byte_at(i * kStride + kContext); },
      .read =
          [byte_at](std::int64_t i, std::span<float> numbers) {
            for (std::size_t at = 0; at < numbers.size(); ++at)
              numbers[at] = byte_at(i * kStride + static_cast<std::int64_t>(at));
          }};
}

// From [N, 1, 1, context] bytes, as numbers, to [N, context, width].
struct BytesImpl : torch::nn::Cloneable<BytesImpl> {
  BytesImpl() { reset(); }
  void reset() override {
    embedding = register_module("embedding", torch::nn::Embedding(kBytes, kWidth));
    positions = register_parameter("positions", 0.02 * torch::randn({kContext, kWidth}));
  }
  torch::Tensor forward(const torch::Tensor& bytes) {
    return embedding(bytes.flatten(1).to(torch::kLong)) + positions;
  }
  torch::nn::Embedding embedding{nullptr};
  torch::Tensor positions;
};
TORCH_MODULE(Bytes);

// Attention of each byte to those before it, then two layers for each byte alone.
struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  BlockImpl() { reset(); }
  void reset() override {
    using namespace torch::nn;
    norm1 = register_module("norm1", LayerNorm(LayerNormOptions({kWidth})));
    norm2 = register_module("norm2", LayerNorm(LayerNormOptions({kWidth})));
    projections = register_module("projections", Linear(kWidth, 3 * kWidth));
    output = register_module("output", Linear(kWidth, kWidth));
    wide = register_module("wide", Linear(kWidth, 4 * kWidth));
    narrow = register_module("narrow", Linear(4 * kWidth, kWidth));
  }
  torch::Tensor forward(torch::Tensor x) {
    const std::int64_t batch = x.size(0);
    const auto heads = projections(norm1(x))
                           .view({batch, kContext, 3, kHeads, kWidth / kHeads})
                           .permute({2, 0, 3, 1, 4});
    const auto mixed = torch::scaled_dot_product_attention(
        heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    x = x + output(mixed.transpose(1, 2).reshape({batch, kContext, kWidth}));
    return x + narrow(torch::gelu(wide(norm2(x))));
  }
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear projections{nullptr}, output{nullptr}, wide{nullptr}, narrow{nullptr};
};
TORCH_MODULE(Block);

torch::Tensor last_position(const torch::Tensor& x) { return x.select(1, kContext - 1); }

torch::nn::Sequential transformer(std::int64_t classes) {
  using namespace torch::nn;
  return Sequential(Bytes(), Block(), Block(), Functional(last_position),
      LayerNorm(LayerNormOptions({kWidth})), Linear(kWidth, classes));
}

}  // namespace

LOCKSTEP_DATA("text", [](const std::string& folder) {
  return lockstep::nn::PluginParts{
      windows_of(folder + "/train.txt"), windows_of(folder + "/test.txt")};
})

LOCKSTEP_MODEL("byte-transformer", transformer)
