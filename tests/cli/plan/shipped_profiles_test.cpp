#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "bench/cli/plan/plan_flags.h"
#include "lockstep/plan/model_profile.h"

namespace lockstep::cli {
namespace {

/// The parameters and FLOP of a net, as its authors and those who measured it say.
struct KnownNet {
  double parameters = 0;
  double flops = 0;  ///< forward and backward of a sample
};

// Multiply-adds of forward, in 1e9 as torchvision lists them. Each costs two FLOP, and in backward
// four.
KnownNet images(double parameters, double multiply_adds) {
  return {parameters, 6 * multiply_adds * 1e9};
}

/// A sequence of a transformer.
struct Sequence {
  double weights = 0;  ///< that each token is multiplied with
  int layers = 0;
  double width = 0;
  double tokens = 0;
};

// Each weight costs a token 6. In attention it costs 4 times the width to meet another one, 8 in
// backward, and 2 as backward computes the scores again.
KnownNet sequences(double parameters, const Sequence& of) {
  return {parameters, of.tokens * (6 * of.weights + 14 * of.layers * of.width * of.tokens)};
}

KnownNet gpt2(double parameters, int layers, double width) {
  const double weights = 12 * layers * width * width + 50257 * width;
  return sequences(parameters, {weights, layers, width, 1024});
}

KnownNet bert(double parameters, int layers, double width) {
  const double weights = (12 * layers + 1) * width * width + 30522 * width;
  return sequences(parameters, {weights, layers, width, 512});
}

/// The sizes of a Llama; a key head serves `heads / key_heads` heads.
struct LlamaSizes {
  int layers = 0;
  double width = 0, hidden = 0, words = 0;
  double shared = 1;  ///< heads of a key head
  double tokens = 0;
};

KnownNet llama(double parameters, const LlamaSizes& of) {
  const double layer = (2 + 2 / of.shared) * of.width * of.width + 3 * of.width * of.hidden;
  return sequences(
      parameters, {of.layers * layer + of.words * of.width, of.layers, of.width, of.tokens});
}

const std::map<std::string, KnownNet>& known_nets() {
  static const std::map<std::string, KnownNet> kNets{{"mnist-small", {402442, 3315456}},
      {"mnist-large", {4104202, 713005056}}, {"resnet18", images(11689512, 1.814)},
      {"resnet18-cifar", images(11173962, 0.556)}, {"resnet34", images(21797672, 3.664)},
      {"resnet50", images(23528522, 4.087)},  // of 10 classes
      {"resnet101", images(44549160, 7.801)}, {"resnet152", images(60192808, 11.514)},
      {"vgg16", images(138357544, 15.47)}, {"vgg19", images(143667240, 19.632)},
      {"vit-b16", images(86567656, 17.564)}, {"bert-base", bert(109514298, 12, 768)},
      {"bert-large", bert(335174458, 24, 1024)}, {"gpt2", gpt2(124439808, 12, 768)},
      {"gpt2-medium", gpt2(354823168, 24, 1024)}, {"gpt2-large", gpt2(774030080, 36, 1280)},
      {"gpt2-xl", gpt2(1557611200, 48, 1600)}, {"gpt-1.3b", gpt2(1313626112, 24, 2048)},
      {"llama-110m", llama(109529856, {12, 768, 2048, 32000, 1, 1024})},
      {"llama-2-7b", llama(6738415616, {32, 4096, 11008, 32000, 1, 4096})},
      {"llama-3-8b", llama(8030261248, {32, 4096, 14336, 128256, 4, 8192})},
      {"llama-3-70b", llama(70553706496, {80, 8192, 28672, 128256, 8, 8192})},
      {"llama-3.2-1b", llama(1235814400, {16, 2048, 8192, 128256, 4, 8192})}};
  return kNets;
}

plan::ModelProfile profile_of(const std::string& model) {
  return plan::parse_profile(shipped_profile(model).value(), model);
}

TEST(ShippedProfiles, AreOfTheseNets) {
  std::vector<std::string> names;
  for (const auto& [name, net] : known_nets()) {
    names.push_back(name);
    EXPECT_EQ(parse_plan({"--model", name, "--device", "A100"})->profile, name);
  }
  EXPECT_THAT(shipped_models(), ::testing::UnorderedElementsAreArray(names));
}

TEST(ShippedProfiles, HaveTheParametersAndTheArithmeticOfTheirNets) {
  for (const auto& [name, net] : known_nets()) {
    const plan::ModelProfile profile = profile_of(name);
    EXPECT_EQ(profile.model, name);
    EXPECT_EQ(profile.parameter_bytes() / 4, net.parameters) << name;
    EXPECT_NEAR(profile.flops / net.flops, 1, 0.03) << name << ": " << profile.flops;
    EXPECT_GT(profile.activation_bytes(), 0) << name;
  }
}

TEST(ShippedProfiles, AreTransformersWhereMatrixProductsAreMost) {
  for (const auto& [name, net] : known_nets()) {
    const plan::ModelProfile profile = profile_of(name);
    const bool is_of_images =
        name.starts_with("mnist") || name.starts_with("resnet") || name.starts_with("vgg");
    EXPECT_EQ(profile.product_flops > profile.flops / 2, !is_of_images) << name;
  }
}

TEST(ShippedProfiles, CanBeMovedToEachDevice) {
  for (const std::string& model : shipped_models()) {
    for (const plan::Device& device : plan::known_devices()) {
      const plan::ModelProfile moved = plan::on_device(profile_of(model), device);
      plan::check_profile(moved);
      EXPECT_GT(moved.step_seconds(8), 0) << model << " on " << device.name;
    }
  }
}

}  // namespace
}  // namespace lockstep::cli
