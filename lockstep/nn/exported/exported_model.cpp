#include "lockstep/nn/exported/exported_model.h"

#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include "lockstep/core/error.h"

namespace lockstep::nn {

namespace {

constexpr const char* kLoss = "loss";

// Of a net that computes its loss itself.
std::optional<std::vector<std::string>> numbers_beside_loss(std::vector<std::string> numbers) {
  if (std::erase(numbers, kLoss) == 0) return std::nullopt;
  return numbers;
}

// [1, samples, loss and numbers]; numbers of other types than the loss's are of it, too.
torch::Tensor row_of(const std::vector<torch::Tensor>& numbers, std::int64_t samples) {
  const torch::Tensor& given = numbers.front();
  // Of 16 bits, a row could not count its samples.
  const torch::Tensor loss =
      given.scalar_type() == torch::kDouble ? given : given.to(torch::kFloat);
  std::vector<torch::Tensor> row = {
      at::full({}, samples, loss.options().requires_grad(false)), loss};
  for (std::size_t i = 1; i < numbers.size(); ++i)
    row.push_back(numbers[i].detach().to(loss.options()));
  return at::stack(row).unsqueeze(0);
}

// See Note [Writing in place].
void keep_batch(const ExportedModuleImpl& net, std::vector<torch::Tensor>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (net.changes_input(i)) inputs[i] = inputs[i].clone();
}

}  // namespace

ExportedModelImpl::ExportedModelImpl(const std::string& file, bool leaves_parameters_empty)
    : ExportedModelImpl(file, load_exported(file, leaves_parameters_empty)) {
  check_form();
  net()->lay_out_kernels();
}

ExportedModelImpl::ExportedModelImpl(std::string file, ExportedModule net)
    : AroundNet(std::move(net)),
      file_(std::move(file)),
      numbers_(numbers_beside_loss(this->net()->number_outputs())) {}

void ExportedModelImpl::check_form() const {
  net()->check_evaluation();
  net()->check_state();
  net()->check_outputs(kLoss);
  const auto fixed = net()->input_of_fixed_batch();
  check(!fixed, file_, ": the first size of its input ", fixed.value_or(""),
      " is fixed, but batches vary; export it with dynamic_shapes={\"", fixed.value_or(""),
      "\": {0: torch.export.Dim(\"batch\")}}");
  check(net()->first_output_form().has_value(), file_, ": the program returns no tensor");
}

torch::Tensor ExportedModelImpl::forward_all(std::vector<torch::Tensor> inputs) {
  keep_batch(*net(), inputs);
  return numbers_ ? row_of_numbers(std::move(inputs)) : net()->first_output(std::move(inputs));
}

torch::Tensor ExportedModelImpl::row_of_numbers(std::vector<torch::Tensor> inputs) {
  check(!inputs.empty(), file_, ": takes tensors");
  const std::int64_t samples = inputs.front().size(0);
  const NamedTensors outputs = net()->forward(std::move(inputs));
  std::vector<torch::Tensor> numbers;
  for (const std::string& name : names_of_row()) numbers.push_back(outputs[name]);
  return row_of(numbers, samples);
}

std::vector<std::string> ExportedModelImpl::names_of_row() const {
  std::vector<std::string> names = {kLoss};
  names.insert(names.end(), numbers_->begin(), numbers_->end());
  return names;
}

Layers ExportedModelImpl::layers() const {
  if (numbers_) return net()->layers(names_of_row(), row_of);
  return net()->layers(
      {}, [](const std::vector<torch::Tensor>& outputs, std::int64_t) { return outputs.front(); });
}

std::shared_ptr<torch::nn::Module> ExportedModelImpl::around(ExportedModule net) const {
  return std::shared_ptr<ExportedModelImpl>(new ExportedModelImpl(file_, std::move(net)));
}

}  // namespace lockstep::nn
