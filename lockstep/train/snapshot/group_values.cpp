#include "lockstep/train/snapshot/group_values.h"

#include <cstdint>
#include <cstring>
#include <iterator>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/types.h>

namespace lockstep {
namespace {

torch::Tensor bytes_of(const std::string& text) {
  torch::Tensor bytes = at::empty({std::ssize(text)}, torch::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const torch::Tensor& bytes) {
  return {
      static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

torch::Tensor size_of(const std::string& text) {
  return at::full({1}, std::ssize(text), torch::kLong);
}

}  // namespace

void maximize(std::initializer_list<double*> numbers, const ProcessGroup& group) {
  if (group.size() == 1) return;
  const torch::Tensor all = at::empty({std::ssize(numbers)}, torch::kDouble);
  auto* place = all.mutable_data_ptr<double>();
  for (const double* number : numbers) *place++ = *number;
  group.all_reduce(all, ReduceOp::kMax).wait();
  const auto* agreed = all.const_data_ptr<double>();
  for (double* number : numbers) *number = *agreed++;
}

std::string broadcast_text(const std::string& text, int root, const ProcessGroup& group) {
  const torch::Tensor size = size_of(text);
  group.broadcast(size, root).wait();
  if (size.item<std::int64_t>() == 0) return {};
  const torch::Tensor bytes =
      group.rank() == root ? bytes_of(text) : at::empty({size.item<std::int64_t>()}, torch::kByte);
  group.broadcast(bytes, root).wait();
  return text_of(bytes);
}

std::vector<std::string> gather_texts(
    const std::string& text, int root, const ProcessGroup& group) {
  const torch::Tensor sizes = at::empty({group.size()}, torch::kLong);
  group.all_gather(sizes, size_of(text)).wait();
  std::vector<std::string> texts;
  if (group.rank() != root) {
    if (!text.empty()) group.send(bytes_of(text), root).wait();
    return texts;
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto size = sizes[rank].item<std::int64_t>();
    if (rank == root || size == 0) {
      texts.push_back(rank == root ? text : "");
      continue;
    }
    const torch::Tensor bytes = at::empty({size}, torch::kByte);
    group.recv(bytes, rank).wait();
    texts.push_back(text_of(bytes));
  }
  return texts;
}

}  // namespace lockstep
