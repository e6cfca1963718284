#include "tests/accelerator/late_call.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/accelerator/generator.h"
#include "tests/accelerator/runtime.h"
#include "tests/accelerator/stack_values.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>

namespace lockstep::emulated {
namespace {

// Whose results have sizes that depend on values.
const std::set<std::string> kOfValues = {"aten::nonzero", "aten::masked_select", "aten::_unique2",
    "aten::unique_consecutive", "aten::unique_dim", "aten::bincount", "aten::repeat_interleave"};

/// The arguments and results of an operator, as a call on zeros leaves their sizes.
struct Example {
  Stack arguments, results;
};

void describe(std::ostream& out, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  out << tensor.device().type() << tensor.scalar_type() << tensor.sizes() << tensor.strides();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) out << "number";
}

void describe(std::ostream& out, const c10::IValue& value) {
  out << ';';
  if (value.isTensor()) return describe(out, value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) describe(out << ',', tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList())
      describe(out << ',', tensor.value_or(at::Tensor()));
  } else if (!value.isGenerator()) {
    out << value;
  }
}

/// The examples that were made, by all that their sizes and types hang on: steps of a training
/// repeat their calls, so each is computed on zeros once.
class Examples {
 public:
  static Examples& get() {
    static Examples* const kExamples = new Examples;  // streams may outlive statics
    return *kExamples;
  }

  std::optional<Example> find(const std::string& call) {
    const std::lock_guard lock(mutex_);
    const auto found = by_call_.find(call);
    return found == by_call_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Keeps an example without its memory; none of its tensors may be a view of another.
  void keep(const std::string& call, const Example& example) {
    Example kept;
    for (const c10::IValue& value : example.arguments)
      kept.arguments.push_back(mapped(value, &without_memory));
    for (const c10::IValue& value : example.results)
      kept.results.push_back(mapped(value, &without_memory));
    const std::lock_guard lock(mutex_);
    by_call_.emplace(call, std::move(kept));
  }

 private:
  static at::Tensor without_memory(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), on_cpu(tensor).device(c10::kMeta));
  }

  std::mutex mutex_;
  std::unordered_map<std::string, Example> by_call_;
};

/// One call of an operator.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack arguments)
      : op_(op), schema_(op.schema()), arguments_(std::move(arguments)), device_(device_of_call()) {
    check_devices();
  }

  Stack results() { return waits() ? results_now() : results_later(); }

 private:
  c10::DeviceIndex device_of_call() const;
  void check_devices() const;
  bool names_indices() const { return schema_.name().find("index") != std::string::npos; }
  bool waits() const;
  bool has_mask() const;
  Stack results_now();
  Stack results_later();
  Stack views() const;
  Stack zeros() const;
  Example example() const;
  bool gives_views() const { return !schema_.returns().empty() && argument_behind(0, false); }
  std::string text() const;
  Stack run(Stack stack) const;
  template <typename Replace>
  void replace_generators(Stack& stack, const Replace& replace) const;
  std::optional<std::size_t> argument_behind(std::size_t result, bool written) const;
  c10::IValue result_like(const c10::IValue& example, std::size_t index) const;
  Stack targets_of(const Stack& results) const;
  at::Tensor made_like(const at::Tensor& example) const;
  void follow_sizes(const Stack& examples) const;
  std::size_t stream() const { return Runtime::get().current(device_); }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack arguments_;
  c10::DeviceIndex device_;
};

c10::DeviceIndex Call::device_of_call() const {
  for (const c10::IValue& argument : arguments_) {
    if (argument.isDevice()) return argument.toDevice().index();
    for (const at::Tensor& tensor : tensors_in(argument))
      if (is_on_device(tensor)) return tensor.device().index();
  }
  return Runtime::get().current_device();
}

// As on a GPU: all tensors on one device, but for numbers and for indices on the host.
void Call::check_devices() const {
  for (const c10::IValue& argument : arguments_)
    for (const at::Tensor& tensor : tensors_in(argument)) {
      const bool is_here = is_on_device(tensor) && tensor.device().index() == device_;
      const bool may_be_elsewhere = tensor.is_cpu() && (tensor.dim() == 0 || names_indices());
      TORCH_CHECK(is_here || may_be_elsewhere, schema_.name(), ": a tensor is on ", tensor.device(),
          ", another on emulated:", int{device_});
    }
}

bool Call::has_mask() const {
  return names_indices() && std::ranges::any_of(arguments_, [](const c10::IValue& argument) {
    return may_hold_masks(argument) && std::ranges::any_of(tensors_in(argument), &is_mask);
  });
}

bool Call::waits() const {
  const auto is_tensors = [](const c10::Argument& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
           result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  };
  return kOfValues.contains(schema_.name()) || has_mask() ||
         !std::ranges::all_of(schema_.returns(), is_tensors);
}

template <typename Replace>
void Call::replace_generators(Stack& stack, const Replace& replace) const {
  for (std::size_t i = 0; i < stack.size(); ++i)
    if (schema_.arguments()[i].type()->str().find("Generator") != std::string::npos)
      stack[i] =
          replace(stack[i].isGenerator() ? stack[i].toGenerator() : default_generator(device_));
}

// Numbers and indices of the host are taken as they are now.
Stack Call::views() const {
  Stack stack;
  for (const c10::IValue& argument : arguments_) stack.push_back(replaced(argument, &kernels_view));
  replace_generators(stack, [](const at::Generator& given) {
    return given.device().is_cpu() ? given : at::check_generator<Generator>(given)->next();
  });
  return stack;
}

Stack Call::zeros() const {
  Stack stack;
  for (const c10::IValue& argument : arguments_) stack.push_back(replaced(argument, &zeros_for));
  replace_generators(stack, [](const at::Generator&) { return at::detail::createCPUGenerator(); });
  return stack;
}

Stack Call::run(Stack stack) const {
  const KernelDispatch dispatch;
  op_.callBoxed(&stack);
  return stack;
}

// With all that sizes and types of results hang on.
std::string Call::text() const {
  std::ostringstream text;
  text << &schema_;
  for (const c10::IValue& argument : arguments_) describe(text, argument);
  return text.str();
}

Example Call::example() const {
  const std::string call = gives_views() ? "" : text();
  if (auto known = Examples::get().find(call)) return *std::move(known);
  Example example{.arguments = zeros(), .results = {}};
  example.results = run(example.arguments);
  if (!gives_views()) Examples::get().keep(call, example);
  return example;
}

// Which argument a result is, or is a view of.
std::optional<std::size_t> Call::argument_behind(std::size_t result, bool written) const {
  const c10::AliasInfo* const alias = schema_.returns()[result].alias_info();
  if (alias == nullptr || alias->isWrite() != written) return std::nullopt;
  for (std::size_t i = 0; i < schema_.arguments().size(); ++i) {
    const c10::AliasInfo* const other = schema_.arguments()[i].alias_info();
    if (other != nullptr && other->beforeSets() == alias->beforeSets()) return i;
  }
  return std::nullopt;
}

at::Tensor Call::made_like(const at::Tensor& example) const {
  return at::empty_strided(example.sizes(), example.strides(),
      on_cpu(example).device(c10::Device(c10::kPrivateUse1, device_)));
}

c10::IValue Call::result_like(const c10::IValue& example, std::size_t index) const {
  if (const auto written = argument_behind(index, true)) return arguments_[*written];
  if (example.isTensorList()) {
    c10::List<at::Tensor> made;
    for (const at::Tensor& tensor : example.toTensorVector()) made.push_back(made_like(tensor));
    return made;
  }
  if (!example.isTensor() || !example.toTensor().defined()) return example;
  const at::Tensor& like = example.toTensor();
  const auto seen = argument_behind(index, false);
  if (!seen) return made_like(like);
  const at::Tensor& base = arguments_[*seen].toTensor();
  return base.as_strided(
      like.sizes(), like.strides(), like.storage_offset() + base.storage_offset());
}

// Where the kernel's results go: nowhere, for what is an argument or a view of one.
Stack Call::targets_of(const Stack& results) const {
  Stack targets;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool is_new = !argument_behind(i, true) && !argument_behind(i, false);
    targets.push_back(is_new ? replaced(results[i], &kernels_view) : c10::IValue());
  }
  return targets;
}

Stack Call::results_now() {
  Runtime::get().finish_as_host(streams().mark(stream()));
  const Stack values = run(views());
  Stack results;
  for (std::size_t i = 0; i < values.size(); ++i) results.push_back(result_like(values[i], i));
  streams().enqueue(
      stream(), [values, targets = targets_of(results)] { copy_values(values, targets); });
  return results;
}

// An out= tensor takes the size that the kernel gives it.
void Call::follow_sizes(const Stack& examples) const {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (!arguments_[i].isTensor() || !is_on_device(arguments_[i].toTensor())) continue;
    const at::Tensor& now = arguments_[i].toTensor();
    const at::Tensor& after = examples[i].toTensor();
    if (now.sizes() != after.sizes()) now.resize_(after.sizes());
  }
}

Stack Call::results_later() {
  const Example like = example();
  follow_sizes(like.arguments);
  Stack results;
  for (std::size_t i = 0; i < like.results.size(); ++i)
    results.push_back(result_like(like.results[i], i));
  if (gives_views()) return results;
  Runtime::get().count(&Counts::kernels);
  Runtime::get().streams().enqueue(
      stream(), [op = op_, stack = views(), targets = targets_of(results)]() mutable {
        const KernelDispatch dispatch;
        const auto outputs = replaced_outputs(op.schema(), stack);
        op.callBoxed(&stack);
        for (const auto& [view, own] : outputs) view.copy_(own);
        copy_values(stack, targets);
      });
  return results;
}

}  // namespace

at::Tensor kernels_view(const at::Tensor& tensor) {
  const KernelDispatch dispatch;
  if (tensor.numel() == 0)
    return at::empty_strided(tensor.sizes(), tensor.strides(), on_cpu(tensor));
  void* const address =
      Runtime::get().memory(tensor.device().index()).inside(tensor.const_data_ptr());
  return at::from_blob(address, tensor.sizes(), tensor.strides(), on_cpu(tensor));
}

void queue_operator(const c10::OperatorHandle& op, Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  Call call(op, torch::jit::pop(*stack, count));
  for (c10::IValue& result : call.results()) stack->push_back(std::move(result));
}

}  // namespace lockstep::emulated
