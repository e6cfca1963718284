// Saving, loading and gathering of the state. The wrapped optimizer's own save and load are the one
// way in which any optimizer can write its state down, so the ranks exchange that.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/serialize/archive.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/optim/lending.h"

namespace lockstep {
namespace {

using torch::Tensor;

Tensor bytes_of(const std::string& text) {
  Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, torch::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
  return bytes;
}

void send_bytes(
    const Tensor& bytes, int to, const torch::Device& device, const ProcessGroup& group) {
  const Tensor size = torch::full({1}, bytes.numel(), torch::kLong);
  group.send(size.to(device), to).wait();
  group.send(bytes.to(device), to).wait();
}

Tensor receive_bytes(int from, const torch::Device& device, const ProcessGroup& group) {
  const Tensor size = at::empty({1}, at::TensorOptions(torch::kLong).device(device));
  group.recv(size, from).wait();
  const Tensor bytes =
      at::empty({size.item<std::int64_t>()}, at::TensorOptions(torch::kByte).device(device));
  group.recv(bytes, from).wait();
  return bytes.to(torch::kCPU);
}

// Where the group's tensors live: a backend for GPUs carries no others.
torch::Device device_of(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  for (const auto& group : groups) {
    if (!group.params().empty()) return group.params().front().device();
  }
  return torch::kCPU;
}

}  // namespace

Tensor ShardedOptimizer::own_state_bytes() {
  const Lending lending(
      *optimizer_, param_groups_, shares()[static_cast<std::size_t>(group_.rank())], state_);
  torch::serialize::OutputArchive archive;
  optimizer_->save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return bytes_of(stream.str());
}

void ShardedOptimizer::take_state_bytes(const Tensor& bytes, int owner) {
  torch::serialize::InputArchive archive;
  archive.load_from(
      reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()),
      static_cast<std::size_t>(bytes.numel()));
  States foreign;
  {
    const Lending lending(
        *optimizer_, param_groups_, shares()[static_cast<std::size_t>(owner)], foreign);
    optimizer_->load(archive);
  }
  for (auto& [key, state] : foreign) state_[key] = std::move(state);
}

void ShardedOptimizer::consolidate_state(int to) {
  check(
      to >= 0 && to < group_.size(), "consolidate_state: there is no rank ", to,
      "; the ranks are 0 to ", group_.size() - 1);
  check_parameters();
  forget_foreign_state();
  const torch::Device device = device_of(param_groups_);
  if (group_.rank() != to) {
    send_bytes(own_state_bytes(), to, device, group_);
    return;
  }
  for (int owner = 0; owner < group_.size(); ++owner) {
    if (owner != to) take_state_bytes(receive_bytes(owner, device, group_), owner);
  }
}

void ShardedOptimizer::save(torch::serialize::OutputArchive& archive) const {
  States copies;  // of the entries; their tensors are shared
  for (const auto& [key, state] : state_) copies[key] = state->clone();
  const Lending lending(*optimizer_, param_groups_, all_parameters(), copies);
  optimizer_->save(archive);
}

void ShardedOptimizer::load(torch::serialize::InputArchive& archive) {
  States loaded;
  {
    const Lending lending(*optimizer_, param_groups_, all_parameters(), loaded);
    optimizer_->load(archive);
    for (std::size_t group = 0; group < param_groups_.size(); ++group) {
      param_groups_[group].set_options(optimizer_->param_groups()[group].options().clone());
    }
  }
  std::swap(state_, loaded);
  forget_foreign_state();
}

}  // namespace lockstep
