#include "tests/nn/torchvision_reference.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lockstep/core/error.h"

namespace lockstep::nn {
namespace {

// SplitMix64, its upper 53 bits: value() of the script.
double value(std::uint64_t tensor, std::uint64_t index) {
  std::uint64_t x = index + (tensor << 40) + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

constexpr std::uint64_t kImages = 1000, kScores = 1001, kDot = 1002;

// Makes no temporary of the size of a tensor: those of a VGG are large.
template <typename Element>
torch::Tensor formula(std::uint64_t tensor, at::IntArrayRef sizes, double factor, double addend,
    at::ScalarType type) {
  auto result = at::empty(sizes, type);
  auto* out = result.mutable_data_ptr<Element>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    const double number = factor * value(tensor, static_cast<std::uint64_t>(i)) + addend;
    out[i] = static_cast<Element>(number);
  }
  return result;
}

void fill_tensor(torch::Tensor& tensor, std::uint64_t place, double factor, double addend) {
  const auto numbers = tensor.scalar_type() == at::kDouble
                           ? formula<double>(place, tensor.sizes(), factor, addend, at::kDouble)
                           : formula<float>(place, tensor.sizes(), factor, addend, at::kFloat);
  tensor.copy_(numbers);
}

void fill_tensor(torch::Tensor& tensor, std::uint64_t place, const std::string& name) {
  if (name.ends_with("num_batches_tracked")) {
    tensor.zero_();
  } else if (name.ends_with("running_var") || (name.ends_with("weight") && tensor.dim() == 1)) {
    fill_tensor(tensor, place, 1, 0.5);
  } else if (tensor.dim() == 1) {
    fill_tensor(tensor, place, 1, -0.5);
  } else {
    const double bound = std::sqrt(6 / static_cast<double>(tensor[0].numel()));
    fill_tensor(tensor, place, 2 * bound, -bound);
  }
}

std::vector<double> rest_of(std::istringstream& line) {
  std::vector<double> values;
  for (double number = 0; line >> number;) values.push_back(number);
  return values;
}

Reference::TensorSums tensor_of(const std::string& name, std::istringstream& line) {
  Reference::TensorSums tensor{.name = name, .shape = {}, .seed0 = {}, .after = {}};
  line >> tensor.shape >> tensor.seed0.norm >> tensor.seed0.dot;
  line >> tensor.after.norm >> tensor.after.dot;
  EXPECT_TRUE(line) << name;
  return tensor;
}

template <typename Element>
Sums sums_of(const torch::Tensor& flat) {
  const auto* numbers = flat.const_data_ptr<Element>();
  double squares = 0, dot = 0;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const auto number = static_cast<double>(numbers[i]);
    squares += number * number;
    dot += number * value(kDot, static_cast<std::uint64_t>(i));
  }
  return {std::sqrt(squares), dot};
}

}  // namespace

Reference read_reference(const std::string& model) {
  std::ifstream file(LOCKSTEP_CONFORMANCE_DIR "/models/" + model + ".txt");
  EXPECT_TRUE(file) << model;
  Reference found;
  for (std::string text, kind, name; std::getline(file, text);) {
    std::istringstream line(text);
    line >> kind >> name;
    if (kind == "logits") (name == "eval" ? found.evaluated : found.trained) = rest_of(line);
    if (kind == "tensor") found.tensors.push_back(tensor_of(name, line));
  }
  return found;
}

void fill(Model& model, const Reference& reference) {
  const at::NoGradGuard no_grad;
  auto tensors = state_of(model);
  for (std::size_t i = 0; i < reference.tensors.size(); ++i) {
    const auto& name = reference.tensors[i].name;
    fill_tensor(tensors[name], i, name);
  }
}

torch::Tensor reference_images() {
  return formula<double>(kImages, {4, 3, 64, 64}, 2, -1, at::kDouble);
}

torch::Tensor reference_gradient() { return formula<double>(kScores, {4, 10}, 2, -1, at::kDouble); }

torch::OrderedDict<std::string, torch::Tensor> state_of(const Model& model) {
  auto tensors = model->named_parameters();
  tensors.update(model->named_buffers());
  return tensors;
}

std::string shape_text(const torch::Tensor& tensor) {
  std::string text;
  for (const auto size : tensor.sizes()) text = concat(text, text.empty() ? "" : "x", size);
  return text.empty() ? "scalar" : text;
}

Sums sums(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  if (flat.scalar_type() == at::kFloat) return sums_of<float>(flat);
  return sums_of<double>(flat.to(at::kDouble));
}

void expect_near(const Sums& ours, const Sums& theirs, double relative, const std::string& name) {
  const double size = std::max(theirs.norm, 1e-3);
  EXPECT_NEAR(ours.norm, theirs.norm, relative * size) << name;
  // The factors are below 1, so that the sum's rounding grows with the norm and the root of n.
  EXPECT_NEAR(ours.dot, theirs.dot, 10 * relative * size) << name;
}

double distance(const torch::Tensor& logits, const std::vector<double>& theirs) {
  const auto expected = at::from_blob(const_cast<double*>(theirs.data()), {4, 10}, at::kDouble);
  const auto difference = logits.detach().to(at::kDouble) - expected;
  return (difference.norm() / expected.norm()).item<double>();
}

void expect_alike(const Model& model, const Reference& reference) {
  const auto tensors = state_of(model);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(tensors.size(), reference.tensors.size());
  std::vector<std::string> order;
  for (const auto& expected : reference.tensors) {
    ASSERT_TRUE(tensors.contains(expected.name)) << expected.name;
    EXPECT_EQ(shape_text(tensors[expected.name]), expected.shape) << expected.name;
    if (parameters.contains(expected.name)) order.push_back(expected.name);
  }
  EXPECT_EQ(parameters.keys(), order);
}

void expect_seed0(const Model& model, const Reference& reference) {
  const auto tensors = state_of(model);
  for (const auto& expected : reference.tensors) {
    expect_near(sums(tensors[expected.name]), expected.seed0, 1e-6, expected.name);
  }
}

void expect_trained(const Model& model, const Reference& reference) {
  const auto parameters = model->named_parameters(), buffers = model->named_buffers();
  for (const auto& expected : reference.tensors) {
    const auto* parameter = parameters.find(expected.name);
    const auto after = parameter != nullptr ? parameter->grad() : buffers[expected.name];
    expect_near(sums(after), expected.after, 1e-10, expected.name);
  }
}

}  // namespace lockstep::nn
