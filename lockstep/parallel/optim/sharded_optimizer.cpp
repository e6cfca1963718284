#include "lockstep/parallel/optim/sharded_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize/archive.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/device/parameters.h"
#include "lockstep/parallel/ddp/replicated_state.h"

namespace lockstep {
namespace {

std::vector<std::size_t> largest_first(const std::vector<std::int64_t>& elements) {
  std::vector<std::size_t> order(elements.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
      [&](std::size_t a, std::size_t b) { return elements[a] > elements[b]; });
  return order;
}

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

std::unique_ptr<torch::optim::OptimizerOptions> defaults_of(const Optimizer* optimizer) {
  check(optimizer != nullptr, "ShardedOptimizer: there is no optimizer");
  check(dynamic_cast<const torch::optim::LBFGS*>(optimizer) == nullptr,
      "ShardedOptimizer: LBFGS computes one step from all parameters together, which no rank has "
      "alone; use it unsharded on every rank");
  return optimizer->defaults().clone();
}

template <typename Body>
void for_each_parameter(const std::vector<OptimizerParamGroup>& groups, Body body) {
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (std::size_t index = 0; index < groups[group].params().size(); ++index) {
      body(group, index, groups[group].params()[index]);
    }
  }
}

using torch::Tensor;

Tensor bytes_of(const std::string& text) {
  Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, on_host(torch::kByte));
  std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
  return bytes;
}

void send_bytes(
    const Tensor& bytes, int to, const torch::Device& device, const ProcessGroup& group) {
  const Tensor size = torch::full({1}, bytes.numel(), on_host(torch::kLong));
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

std::vector<std::vector<int>> balanced_owners(
    const std::vector<std::vector<std::int64_t>>& elements, int ranks) {
  check(ranks >= 1, "balanced_owners: at least 1 rank is needed: ", ranks);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
  std::vector<std::vector<int>> owners;
  for (const auto& group : elements) {
    auto& owners_of_group = owners.emplace_back(group.size());
    for (const std::size_t parameter : largest_first(group)) {
      const auto least = std::min_element(loads.begin(), loads.end());
      owners_of_group[parameter] = static_cast<int>(least - loads.begin());
      *least += group[parameter];
    }
  }
  return owners;
}

/// Lends parameters, with the options of their groups, and a state to an optimizer.
class ShardedOptimizer::Lending {
 public:
  Lending(torch::optim::Optimizer& borrower,
      const std::vector<torch::optim::OptimizerParamGroup>& groups, const Parameters& parameters,
      States& state)
      : borrower_(borrower), state_(state) {
    auto& lent = borrower_.param_groups();
    lent.clear();
    for (std::size_t group = 0; group < groups.size(); ++group) {
      lent.emplace_back(parameters[group], groups[group].options().clone());
    }
    std::swap(borrower_.state(), state_);
  }

  ~Lending() {
    std::swap(borrower_.state(), state_);
    borrower_.param_groups().clear();
  }

  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

 private:
  torch::optim::Optimizer& borrower_;
  States& state_;
};

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<Optimizer> optimizer, ProcessGroup group)
    : Optimizer(std::vector<OptimizerParamGroup>(), defaults_of(optimizer.get())),
      optimizer_(std::move(optimizer)),
      group_(std::move(group)),
      flats_(group_) {
  std::swap(param_groups_, optimizer_->param_groups());
  std::swap(state_, optimizer_->state());
  check_parameters();
  forget_foreign_state();
}

torch::Tensor ShardedOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode with_gradients(true);
    loss = closure();
  }
  update([&] { optimizer_->step(); });
  return loss;
}

// The states are not asked for: they come with the first step.
bool ShardedOptimizer::can_skip() const {
  const auto* const skippable = dynamic_cast<const SkippableStep*>(optimizer_.get());
  if (skippable == nullptr) return false;
  States none;
  const Lending lending(
      *optimizer_, param_groups_, shares()[static_cast<std::size_t>(group_.rank())], none);
  return skippable->can_skip();
}

void ShardedOptimizer::step_unless(const torch::Tensor& skip) {
  update([&] { dynamic_cast<SkippableStep&>(*optimizer_).step_unless(skip); });
}

void ShardedOptimizer::update(const std::function<void()>& step_of_share) {
  check_parameters();
  forget_foreign_state();
  const std::vector<Parameters> shares = this->shares();
  {
    const auto own = static_cast<std::size_t>(group_.rank());
    const Lending lending(*optimizer_, param_groups_, shares[own], state_);
    step_of_share();
  }
  std::vector<std::vector<Tensor>> updated(shares.size());
  for (std::size_t owner = 0; owner < shares.size(); ++owner)
    for (const auto& of_group : shares[owner])
      updated[owner].insert(updated[owner].end(), of_group.begin(), of_group.end());
  flats_.broadcast(updated);
}

std::vector<std::vector<int>> ShardedOptimizer::owners() const {
  std::vector<std::vector<std::int64_t>> elements(param_groups_.size());
  for_each_parameter(
      param_groups_, [&](std::size_t group, std::size_t /*index*/, const torch::Tensor& tensor) {
        elements[group].push_back(tensor.numel());
      });
  return balanced_owners(elements, group_.size());
}

std::vector<ShardedOptimizer::Parameters> ShardedOptimizer::shares() const {
  const auto owners = this->owners();
  std::vector<Parameters> shares(
      static_cast<std::size_t>(group_.size()), Parameters(param_groups_.size()));
  for_each_parameter(
      param_groups_, [&](std::size_t group, std::size_t index, const torch::Tensor& tensor) {
        shares[static_cast<std::size_t>(owners[group][index])][group].push_back(tensor);
      });
  return shares;
}

ShardedOptimizer::Parameters ShardedOptimizer::all_parameters() const {
  Parameters all;
  for (const auto& group : param_groups_) all.push_back(group.params());
  return all;
}

std::size_t ShardedOptimizer::number_of_parameters() const {
  std::size_t number = 0;
  for (const auto& group : param_groups_) number += group.params().size();
  return number;
}

// Again whenever groups were added.
void ShardedOptimizer::check_parameters() {
  if (number_of_parameters() == checked_parameters_) return;
  list_once(param_groups_);
  NamedTensors named;
  for_each_parameter(
      param_groups_, [&](std::size_t group, std::size_t index, const torch::Tensor& tensor) {
        named.emplace_back(concat("group ", group, " parameter ", index), tensor);
      });
  check_same_on_all_ranks("ShardedOptimizer: the parameters", named, group_);
  checked_parameters_ = number_of_parameters();
}

void ShardedOptimizer::forget_foreign_state() {
  std::unordered_set<void*> own;
  const Parameters share = shares()[static_cast<std::size_t>(group_.rank())];
  for (const auto& of_group : share) {
    for (const torch::Tensor& tensor : of_group) own.insert(tensor.unsafeGetTensorImpl());
  }
  States kept;
  for (auto& [key, state] : state_) {
    if (own.contains(key)) kept[key] = std::move(state);
  }
  std::swap(state_, kept);
}

// The wrapped optimizer's own save and load are the one way to write down any optimizer's state, so
// the ranks exchange that.
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
  // The archive names the devices of its owner.
  archive.load_from(reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()),
      static_cast<std::size_t>(bytes.numel()), device_of(param_groups_));
  States foreign;
  {
    const Lending lending(
        *optimizer_, param_groups_, shares()[static_cast<std::size_t>(owner)], foreign);
    optimizer_->load(archive);
  }
  for (auto& [key, state] : foreign) state_[key] = std::move(state);
}

void ShardedOptimizer::consolidate_state(int to) {
  check(to >= 0 && to < group_.size(), "consolidate_state: there is no rank ", to,
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
  settle_steps(*this);
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
