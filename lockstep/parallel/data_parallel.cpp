#include "lockstep/parallel/data_parallel.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel/scatter.h"
#include "lockstep/parallel/operators/operator_rules.h"

namespace lockstep::data_parallel {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

/// Returns one replica's share of the gradient of a gathered output.
torch::Tensor share_of(const torch::Tensor& gradient, const Layout& layout, std::size_t replica) {
  if (layout.numbers) return gradient.select(0, static_cast<std::int64_t>(replica));
  std::int64_t first = 0;
  for (std::size_t i = 0; i < replica; ++i) first += layout.sizes[i];
  return gradient.narrow(0, first, layout.sizes[replica]);
}

/// Puts the gradients of the pieces of an input together; replicas that did not use it count zero.
torch::Tensor join(std::vector<torch::Tensor> pieces, const Layout& layout) {
  torch::Tensor example;
  for (const torch::Tensor& piece : pieces) {
    if (piece.defined()) example = piece;
  }
  if (!example.defined()) return {};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].defined()) {
      auto sizes = example.sizes().vec();
      sizes[0] = layout.sizes[i];
      pieces[i] = at::zeros(sizes, example.options());
    }
    pieces[i] = pieces[i].to(layout.device);
  }
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces);
}

}  // namespace

/// One replica's part of a backward pass.
struct BackwardNode::Task {
  edge_list roots = {};
  variable_list gradients = {};             ///< of the roots
  edge_list wanted = {};                    ///< where gradients are to be caught
  std::vector<std::size_t> positions = {};  ///< of the wanted ones among inputs and tensors
};

BackwardNode::Task BackwardNode::task_of(
    std::size_t replica, const variable_list& gradients) const {
  const ReplicaGraph& graph = graphs[replica];
  Task task;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || !graph.outputs[i].is_valid()) continue;
    task.roots.push_back(graph.outputs[i]);
    const auto share = share_of(gradients[i], outputs[i], replica);
    task.gradients.push_back(share.to(threads->place(replica).device));
  }
  edge_list all = graph.inputs;
  all.insert(all.end(), graph.tensors.begin(), graph.tensors.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is_valid() || !task_should_compute_output(i)) continue;
    task.wanted.push_back(all[i]);
    task.positions.push_back(i);
  }
  return task;
}

namespace {

variable_list run_engine(const edge_list& roots, const variable_list& gradients,
    const edge_list& wanted, bool keep_graph) {
  if (roots.empty() || wanted.empty()) return variable_list(wanted.size());
  return torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, keep_graph, /*create_graph=*/false, /*accumulate_grad=*/false, wanted);
}

template <typename List>
void append(List& list, const List& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

std::vector<variable_list> BackwardNode::run(std::vector<Task> tasks, bool keep_graph) const {
  std::vector<variable_list> found(tasks.size());
  if (in_threads) {
    threads->run(tasks.size(), [&](std::size_t i) {
      const Task task = std::move(tasks[i]);
      found[i] = run_engine(task.roots, task.gradients, task.wanted, keep_graph);
    });
    return found;
  }
  Task all;
  for (const Task& task : tasks) {
    append(all.roots, task.roots);
    append(all.gradients, task.gradients);
    append(all.wanted, task.wanted);
  }
  auto caught = run_engine(all.roots, all.gradients, all.wanted, keep_graph);
  auto next = std::make_move_iterator(caught.begin());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(tasks[i].wanted.size());
    found[i].assign(next, end);
    next = end;
  }
  return found;
}

variable_list BackwardNode::collect(std::vector<variable_list> found) const {
  variable_list results;
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    std::vector<torch::Tensor> pieces;
    for (auto& of_replica : found) pieces.push_back(std::move(of_replica[input]));
    results.push_back(join(std::move(pieces), inputs[input]));
  }
  for (auto& of_replica : found) {
    of_replica.erase(
        of_replica.begin(), of_replica.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
  }
  auto sums = sum_gradients(std::move(found), tensor_devices, *threads);
  std::move(sums.begin(), sums.end(), std::back_inserter(results));
  return results;
}

void BackwardNode::check_may_run() const {
  if (torch::GradMode::is_enabled()) {
    throw Error(
        "DataParallel: a second derivative (create_graph) through it is not supported; "
        "differentiate the module itself twice, or use DistributedDataParallel");
  }
  if (graphs.empty()) {
    throw Error(
        "DataParallel: backward a second time through a graph that has been freed; pass "
        "retain_graph = true the first time");
  }
  for (const auto& [counter, version, index] : watched) {
    if (counter.current_version() == version) continue;
    throw Error(concat("DataParallel: tensor ", index,
        " of the inputs, which backward needs, has been modified by an inplace operation since "
        "forward; change it after backward, or a clone()"));
  }
}

variable_list BackwardNode::apply(variable_list&& gradients) {
  check_may_run();
  const bool keep_graph = torch::autograd::get_current_graph_task_keep_graph();
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < graphs.size(); ++i) tasks.push_back(task_of(i, gradients));
  gradients.clear();
  std::vector<std::vector<std::size_t>> positions;
  for (const Task& task : tasks) positions.push_back(task.positions);
  auto caught = run(std::move(tasks), keep_graph);

  std::vector<variable_list> found(graphs.size());
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    found[i].resize(num_outputs());
    for (std::size_t j = 0; j < positions[i].size(); ++j) {
      found[i][positions[i][j]] = std::exchange(caught[i][j], {});
    }
  }
  return collect(std::move(found));
}

void BackwardNode::release_variables() { graphs.clear(); }

using Tensors = std::vector<torch::Tensor>;

namespace {

/// Returns how many tensors share this one's memory; 0 if it has none.
std::size_t holders_of(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().use_count() : 0;
}

}  // namespace

ReplicaSet::ReplicaSet(std::shared_ptr<torch::nn::Module> original,
    const std::vector<std::shared_ptr<torch::nn::Module>>& replicas,
    const std::vector<Place>& places, torch::Device output_device)
    : original_(std::move(original)),
      originals_(tensors_of(*original_)),
      modules_(original_->named_modules()),
      threads_(std::make_shared<ReplicaThreads>(places)),
      output_device_(output_device) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    replicas_.emplace_back(replicas[i], *original_, places[i], i == 0);
  }
}

bool ReplicaSet::all_on_cpu() const {
  for (std::size_t i = 0; i < threads_->size(); ++i) {
    if (!threads_->place(i).device.is_cpu()) return false;
  }
  return true;
}

ForwardPass::ForwardPass(ReplicaSet& set, const Tensors& inputs, bool has_arguments)
    : set_(set),
      lock_(set.mutex_),
      inputs_(inputs),
      division_(divide_batch(inputs, has_arguments ? set.threads_->size() : 1)) {
  check_unchanged(set_.originals_, set_.modules_, *set_.original_);
  check_on_device(set_.originals_, set_.threads_->place(0).device);
  for (std::size_t i = 0; i < size(); ++i) {
    set_.replicas_[i].follow(set_.originals_, *set_.original_);
  }
  for (const torch::Tensor& input : inputs_) {
    const bool tracked = torch::GradMode::is_enabled() && input.defined() && input.requires_grad();
    is_differentiable_input_.push_back(tracked);
    holders_.push_back(holders_of(input));
    wants_graph_ = wants_graph_ || tracked;
  }
  for (const ModuleTensor& original : set_.originals_) {
    const bool tracked = original.tensor.defined() && original.tensor.requires_grad();
    wants_graph_ = wants_graph_ || (tracked && torch::GradMode::is_enabled());
  }
}

void ForwardPass::run(const Compute& compute) {
  std::vector<Tensors> shards;
  graphs_.resize(size());
  for (std::size_t i = 0; i < size(); ++i) shards.push_back(shards_of(i));
  outputs_.resize(size());
  const bool draws = set_.original_->is_training();
  const std::uint64_t seed = draws ? draw_stream_seed() : 0;
  set_.threads_->run(size(), [&](std::size_t i) {
    std::optional<RandomStream> stream;
    if (draws) stream.emplace(make_stream_generator(seed, i, 0));
    outputs_[i] = compute(i, shards[i]);
  });
  note_changes_in_place(shards);
}

Tensors ForwardPass::shards_of(std::size_t replica) {
  Tensors shards;
  for (std::size_t input = 0; input < inputs_.size(); ++input) {
    shards.push_back(shard(input, replica));
    if (!is_differentiable_input_[input]) continue;
    const auto node = make_node<InputNode>();
    torch::autograd::set_history(shards.back(), node);
    graphs_[replica].inputs.emplace_back(node, 0);
  }
  return shards;
}

/// Returns a piece of the input's memory, or its copy on the replica's device, without history and
/// with a separate version: what a replica changes in place must not disturb the others.
torch::Tensor ForwardPass::shard(std::size_t index, std::size_t replica) {
  const torch::Tensor& input = inputs_[index];
  if (!input.defined()) return {};
  const at::AutoDispatchBelowADInplaceOrView without_history;
  const auto& sizes = division_.sizes[index];
  std::int64_t first = 0;
  for (std::size_t i = 0; i < replica; ++i) first += sizes[i];
  return input.narrow(0, first, sizes[replica]).to(set_.threads_->place(replica).device);
}

void ForwardPass::note_changes_in_place(const std::vector<Tensors>& shards) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const bool changed = std::any_of(shards.begin(), shards.end(), [&](const Tensors& of_replica) {
      return version_of(of_replica[i]) > 0 && of_replica[i].is_alias_of(inputs_[i]);
    });
    if (!changed) continue;
    check(!is_differentiable_input_[i], "DataParallel: the module changed tensor ", i,
        " of its inputs in place, which requires gradients: let it work on a clone()");
    if (!inputs_[i].is_inference()) torch::autograd::impl::bump_version(inputs_[i]);
  }
}

/// Remembers the versions of those inputs whose memory the replicas' graphs have saved.
void ForwardPass::watch_saved_inputs(BackwardNode& node) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const torch::Tensor& input = inputs_[i];
    if (holders_of(input) <= holders_[i] || input.is_inference()) continue;
    node.watched.push_back({torch::autograd::impl::version_counter(input), version_of(input), i});
  }
}

Tensors ForwardPass::gather() {
  Tensors outputs;
  for (std::size_t i = 0; i < outputs_.front().size(); ++i) outputs.push_back(gather_one(i));
  if (wants_graph_) attach(outputs);
  return outputs;
}

bool ForwardPass::is_differentiable(std::size_t output) const {
  return std::any_of(outputs_.begin(), outputs_.end(), [&](const Tensors& of_replica) {
    return of_replica[output].defined() && of_replica[output].requires_grad();
  });
}

torch::Tensor ForwardPass::gather_one(std::size_t output) const {
  Tensors parts;
  for (const Tensors& of_replica : outputs_) parts.push_back(of_replica[output]);
  const bool is_alone = set_.threads_->size() == 1;  // as the module itself
  const bool is_one = parts.size() == 1 && parts[0].defined();
  if (is_one && parts[0].device() == set_.output_device_ && (is_alone || parts[0].dim() > 0)) {
    if (!parts[0].requires_grad() || !wants_graph_) return parts[0];
    // The same memory and version, without the history.
    auto same = parts[0].variable_data();
    torch::autograd::impl::set_version_counter(
        same, torch::autograd::impl::version_counter(parts[0]));
    return same;
  }
  if (is_one && is_alone) return parts[0].detach().to(set_.output_device_);
  const torch::NoGradGuard no_grad;
  return data_parallel::gather(parts, set_.output_device_);
}

Layout ForwardPass::layout_of_output(std::size_t output) const {
  Layout layout;
  layout.device = set_.output_device_;
  for (const Tensors& of_replica : outputs_) {
    const torch::Tensor& part = of_replica[output];
    layout.numbers = part.dim() == 0;
    layout.sizes.push_back(layout.numbers ? 1 : part.size(0));
  }
  return layout;
}

void ForwardPass::attach(const Tensors& outputs) {
  const auto node = make_node<BackwardNode>();
  torch::autograd::edge_list next;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!is_differentiable_input_[i]) continue;
    next.push_back(torch::autograd::impl::gradient_edge(inputs_[i]));
    node->inputs.push_back({division_.sizes[i], false, inputs_[i].device()});
  }
  for (std::size_t i = 0; i < set_.originals_.size(); ++i) {
    const torch::Tensor& tensor = set_.originals_[i].tensor;
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    next.push_back(torch::autograd::impl::gradient_edge(tensor));
    node->tensor_devices.push_back(tensor.device());
    for (std::size_t replica = 0; replica < size(); ++replica) {
      graphs_[replica].tensors.push_back(set_.replicas_[replica].gradient_edge(i));
    }
  }
  node->set_next_edges(std::move(next));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!is_differentiable(i)) continue;
    node->outputs.push_back(layout_of_output(i));
    for (std::size_t replica = 0; replica < size(); ++replica) {
      const torch::Tensor& part = outputs_[replica][i];
      graphs_[replica].outputs.push_back(part.requires_grad()
                                             ? torch::autograd::impl::gradient_edge(part)
                                             : torch::autograd::Edge());
    }
    torch::autograd::set_history(outputs[i], node);
  }
  watch_saved_inputs(*node);
  node->threads = set_.threads_;
  node->graphs = std::move(graphs_);
  node->in_threads = set_.all_on_cpu();
}

}  // namespace lockstep::data_parallel
