#include "lockstep/parallel/data_parallel/backward_node.h"

#include <iterator>
#include <stdexcept>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel/gradient_sum.h"

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

}  // namespace lockstep::data_parallel
