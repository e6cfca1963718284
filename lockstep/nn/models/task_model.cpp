#include "lockstep/nn/models/task_model.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/plugin_library.h"

namespace lockstep::nn {
namespace {

// Of a plugin's net its own module and forward, whose output has any form.
TaskNet net_of(Model net) {
  if (const auto* own = net->as<PluginModelImpl>()) return {own->net().module, own->net().forward};
  const auto forward = [net](TaskNet::Tensors inputs) mutable {
    return net->MultiInputModule::forward(std::move(inputs));
  };
  return {net.ptr(), forward};
}

// What a row of numbers has them in: of 16 bits it could not count its samples.
torch::Tensor in_row(const torch::Tensor& number, const torch::Tensor& loss) {
  const bool is_wide = loss.scalar_type() == torch::kDouble;
  return number.to(loss.device(), is_wide ? torch::kDouble : torch::kFloat);
}

}  // namespace

TaskModelImpl::TaskModelImpl(PluginTask task, Model net, std::size_t inputs)
    : AroundNet(std::move(net)),
      task_(std::move(task)),
      inputs_(inputs),
      seen_(net_of(this->net())) {}

torch::Tensor TaskModelImpl::forward_all(std::vector<torch::Tensor> tensors) {
  const std::int64_t samples = tensors.at(0).size(0);
  const auto targets = tensors.begin() + static_cast<std::ptrdiff_t>(inputs_);
  const TaskBatch batch{{tensors.begin(), targets}, {targets, tensors.end()}};
  const bool is_step = is_training() && at::GradMode::is_enabled();
  const TaskResult result =
      is_step ? result_of(task_.turns[shared_->turn], batch) : result_of_all(batch);
  if (!shared_->numbers) {
    shared_->numbers.emplace();
    for (const auto& [name, value] : result.numbers) shared_->numbers->push_back(name);
  }
  check_names(result);
  const torch::Tensor loss = in_row(result.loss, result.loss);
  const auto number = [&](double value) {
    return at::full({}, value, loss.options().requires_grad(false));
  };
  std::vector<torch::Tensor> row = {number(static_cast<double>(samples)), loss};
  for (const std::string& name : *shared_->numbers) {
    const auto found = result.numbers.find(name);
    row.push_back(found == result.numbers.end() ? number(std::numeric_limits<double>::quiet_NaN())
                                                : in_row(found->second.detach(), loss));
  }
  return at::stack(row).unsqueeze(0);
}

TaskResult TaskModelImpl::result_of_all(const TaskBatch& batch) const {
  if (task_.turns.size() == 1) return result_of(task_.turns.front(), batch);
  TaskResult all;
  const auto add = [&](const std::string& name, const torch::Tensor& value) {
    check(all.numbers.emplace(name, value).second, "plugin: two turns of the task ", task_.name,
        " return the number ", printable(name));
  };
  for (const TaskTurn& turn : task_.turns) {
    const TaskResult result = result_of(turn, batch);
    all.loss = all.loss.defined() ? all.loss + result.loss : result.loss;
    add(turn.name + "_loss", result.loss);
    for (const auto& [name, value] : result.numbers) add(name, value);
  }
  return all;
}

TaskResult TaskModelImpl::result_of(const TaskTurn& turn, const TaskBatch& batch) const {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(concat("plugin: the task ", task_.name, " failed: ", why));
  };
  TaskResult result;
  try {
    result = turn.function(seen_, batch);
  } catch (const c10::Error& error) {
    if (is_from_outside(error)) throw;
    refuse(error.what_without_backtrace());
  } catch (const std::exception& error) {
    if (is_from_outside(error)) throw;
    refuse(error.what());
  } catch (...) {
    refuse("it threw what is no std::exception");
  }
  check_number("loss", result.loss);
  check(at::isFloatingType(result.loss.scalar_type()) &&
            (result.loss.requires_grad() || !at::GradMode::is_enabled()),
      "plugin: the task ", task_.name,
      " returns a loss without a gradient: compute it from the net's output by LibTorch's "
      "operators, without item() or detach()");
  for (const auto& [name, value] : result.numbers) check_number(name, value);
  return result;
}

void TaskModelImpl::check_number(const std::string& name, const torch::Tensor& value) const {
  check(value.defined() && value.dim() == 0 && !value.is_complex(), "plugin: the task ", task_.name,
      " must return as ", printable(name), " the mean over the batch, a tensor of [], not ",
      value.defined() ? concat(value.sizes(), " of ", value.scalar_type())
                      : std::string("an undefined tensor"));
}

void TaskModelImpl::check_names(const TaskResult& result) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : result.numbers) names.push_back(name);
  const bool fits =
      is_training() ? std::ranges::includes(*shared_->numbers, names) : names == *shared_->numbers;
  check(fits, "plugin: the task ", task_.name,
      " must return the same numbers for every batch: ", joined(*shared_->numbers), ", and then ",
      joined(names));
}

std::shared_ptr<torch::nn::Module> TaskModelImpl::around(Model net) const {
  auto copy = std::make_shared<TaskModelImpl>(task_, std::move(net), inputs_);
  copy->shared_ = shared_;
  return copy;
}

Model with_task(const std::string& task, const Model& net, std::size_t inputs) {
  const auto& all = plugin_tasks();
  const auto found = std::ranges::find(all, task, &PluginTask::name);
  auto names = all_names<TaskKind>();
  for (const PluginTask& each : all) names.push_back(each.name);
  check(found != all.end(), "train: --task: there is no such task: ", task, "; there are ",
      joined(names), did_you_mean(task, names));
  check(!net->numbers(), "train: --task ", task,
      " is for a net whose loss it computes, and this one computes its own: give --task program");
  const std::shared_ptr<ModelImpl> model = std::make_shared<TaskModelImpl>(*found, net, inputs);
  return Model(model);
}

}  // namespace lockstep::nn
