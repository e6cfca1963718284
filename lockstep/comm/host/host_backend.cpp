#include "lockstep/comm/host/host_backend.h"

#include <cstring>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep::host {
namespace {

std::byte* bytes_of(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr;
}

}  // namespace

HostBackend::HostBackend(
    std::shared_ptr<SharedRegion> region, std::unique_ptr<AddressSpace> space, int rank)
    : region_(std::move(region)),
      rank_(rank),
      engine_(std::make_shared<Engine>(region_, std::move(space), rank)) {
  engine_->join(std::make_shared<Siblings>());
}

Work HostBackend::all_reduce(const torch::Tensor& tensor, ReduceOp op) {
  return engine_->begin({.kind = Kind::kAllReduce,
      .element = tensor.scalar_type(),
      .op = op,
      .elements = tensor.numel(),
      .input = bytes_of(tensor),
      .output = bytes_of(tensor),
      .tensors = {tensor}});
}

Work HostBackend::reduce(const torch::Tensor& tensor, int root, ReduceOp op) {
  return engine_->begin({.kind = Kind::kReduce,
      .element = tensor.scalar_type(),
      .op = op,
      .root = root,
      .elements = tensor.numel(),
      .input = bytes_of(tensor),
      .output = rank_ == root ? bytes_of(tensor) : nullptr,
      .tensors = {tensor}});
}

Work HostBackend::broadcast(const torch::Tensor& tensor, int root) {
  return engine_->begin({.kind = Kind::kBroadcast,
      .element = tensor.scalar_type(),
      .root = root,
      .elements = tensor.numel(),
      .input = rank_ == root ? bytes_of(tensor) : nullptr,
      .output = rank_ == root ? nullptr : bytes_of(tensor),
      .tensors = {tensor}});
}

Work HostBackend::all_gather(const torch::Tensor& output, const torch::Tensor& input) {
  return engine_->begin({.kind = Kind::kAllGather,
      .element = input.scalar_type(),
      .elements = input.numel(),
      .input = bytes_of(input),
      .output = bytes_of(output),
      .tensors = {output, input}});
}

Work HostBackend::gather(const torch::Tensor& output, const torch::Tensor& input, int root) {
  return engine_->begin({.kind = Kind::kGather,
      .element = input.scalar_type(),
      .root = root,
      .elements = input.numel(),
      .input = bytes_of(input),
      .output = rank_ == root ? bytes_of(output) : nullptr,
      .tensors = {output, input}});
}

Work HostBackend::scatter(const torch::Tensor& output, const torch::Tensor& input, int root) {
  return engine_->begin({.kind = Kind::kScatter,
      .element = output.scalar_type(),
      .root = root,
      .elements = output.numel(),
      .pieces = size(),
      .input = rank_ == root ? bytes_of(input) : nullptr,
      .output = bytes_of(output),
      .tensors = {output, input}});
}

Work HostBackend::reduce_scatter(
    const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) {
  return engine_->begin({.kind = Kind::kReduceScatter,
      .element = input.scalar_type(),
      .op = op,
      .elements = output.numel(),
      .pieces = size(),
      .input = bytes_of(input),
      .output = bytes_of(output),
      .tensors = {output, input}});
}

Work HostBackend::all_to_all(const torch::Tensor& output, const torch::Tensor& input) {
  return engine_->begin({.kind = Kind::kAllToAll,
      .element = input.scalar_type(),
      .elements = input.numel() / size(),
      .pieces = size(),
      .input = bytes_of(input),
      .output = bytes_of(output),
      .tensors = {output, input}});
}

Work HostBackend::barrier() { return engine_->begin({.kind = Kind::kBarrier}); }

torch::Tensor HostBackend::empty(std::int64_t elements, const torch::TensorOptions& options) {
  return engine_->space().empty(
      elements, options, [this](const std::string& text) { return exchange(text); });
}

std::vector<std::string> HostBackend::exchange(const std::string& text) {
  constexpr std::int64_t kBytes = 256;
  check(text.size() < kBytes, "exchange: the text is too long: ", text);
  torch::Tensor own = torch::zeros({kBytes}, on_host(torch::kByte));
  std::memcpy(own.data_ptr(), text.data(), text.size());
  const torch::Tensor all = torch::empty({size(), kBytes}, on_host(torch::kByte));
  all_gather(all, own).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < size(); ++rank)
    texts.emplace_back(static_cast<const char*>(all[rank].data_ptr()));
  return texts;
}

}  // namespace lockstep::host
