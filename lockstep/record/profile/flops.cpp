#include "lockstep/record/profile/flops.h"

#include <cstddef>
#include <iterator>

namespace lockstep {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr double kOperations = 2;  // a multiplication and an addition

double product(const Shape& shape, std::size_t from = 0) {
  double product = 1;
  for (std::size_t i = from; i < shape.size(); ++i) product *= static_cast<double>(shape[i]);
  return product;
}

std::int64_t value_at(const Shape& list, std::size_t axis, std::int64_t usual) {
  if (list.empty()) return usual;
  return list.size() == 1 ? list.front() : list.at(axis);
}

// Along one axis; PyTorch's rule.
std::int64_t outputs(
    const OperatorShapes& shapes, std::size_t axis, std::int64_t size, std::int64_t kernel) {
  const std::int64_t stride = value_at(shapes.stride, axis, 1);
  if (shapes.is_padding_same) return size;
  const std::int64_t reach = value_at(shapes.dilation, axis, 1) * (kernel - 1) + 1;
  const std::int64_t padded = size + 2 * value_at(shapes.padding, axis, 0);
  return padded < reach || stride < 1 ? 0 : (padded - reach) / stride + 1;
}

// [N, C, ...] or [C, ...], with [K, C / groups, ...].
double convolution(const OperatorShapes& shapes) {
  const Shape &input = shapes.tensors[0], &weight = shapes.tensors[1];
  if (weight.size() < 3 || input.size() + 1 < weight.size()) return 0;
  const std::size_t axes = weight.size() - 2;
  double pixels = input.size() == weight.size() ? static_cast<double>(input[0]) : 1;
  for (std::size_t axis = 0; axis < axes; ++axis)
    pixels *= static_cast<double>(
        outputs(shapes, axis, input[input.size() - axes + axis], weight[2 + axis]));
  return kOperations * pixels * product(weight);
}

// [..., I] with [O, I].
double linear(const OperatorShapes& shapes) {
  return kOperations * product(shapes.tensors[0]) * static_cast<double>(shapes.tensors[1].front());
}

// [..., M, K] with [..., K, N]; a matrix beside a batch of them is used for each.
double matrices(const Shape& a, const Shape& b) {
  if (a.empty() || b.empty()) return 0;
  const double columns = b.size() < 2 ? 1 : static_cast<double>(b.back());
  if (a.size() >= b.size()) return kOperations * product(a) * columns;
  const double rows = a.size() < 2 ? 1 : static_cast<double>(a[a.size() - 2]);
  return kOperations * product(b) * rows;
}

double of_two(const OperatorShapes& shapes) {
  return matrices(shapes.tensors[0], shapes.tensors[1]);
}

double after_the_first(const OperatorShapes& shapes) {
  return shapes.tensors.size() < 3 ? 0 : matrices(shapes.tensors[1], shapes.tensors[2]);
}

// Queries [..., L, E], keys [..., S, E], values [..., S, V].
double attention(const OperatorShapes& shapes) {
  if (shapes.tensors.size() < 3) return 0;
  const Shape &keys = shapes.tensors[1], &values = shapes.tensors[2];
  if (keys.size() < 2 || values.empty()) return 0;
  const auto length = static_cast<double>(keys[keys.size() - 2]);
  const Shape& queries = shapes.tensors[0];
  const double rows = product(queries) / static_cast<double>(queries.back());
  return kOperations * rows * length * static_cast<double>(queries.back() + values.back());
}

struct Counted {
  std::string_view name;
  double (*flops)(const OperatorShapes&);
};

// That of ours has no name of LibTorch's: its convolution is a 3x3 one with padding 1.
constexpr Counted kCounted[] = {{"aten::conv1d", convolution}, {"aten::conv2d", convolution},
    {"aten::conv3d", convolution}, {"lockstep::conv_relu_pool", convolution},
    {"aten::linear", linear}, {"aten::mm", of_two}, {"aten::bmm", of_two}, {"aten::matmul", of_two},
    {"aten::addmm", after_the_first}, {"aten::baddbmm", after_the_first},
    {"aten::scaled_dot_product_attention", attention}};

const Counted* find(std::string_view name) {
  for (const Counted& each : kCounted)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace

bool has_flops(std::string_view name) { return find(name) != nullptr; }

double forward_flops(std::string_view name, const OperatorShapes& shapes) {
  const Counted* const counted = find(name);
  if (counted == nullptr || shapes.tensors.size() < 2) return 0;
  if (shapes.tensors[0].empty() || shapes.tensors[1].empty()) return 0;
  return counted->flops(shapes);
}

}  // namespace lockstep
