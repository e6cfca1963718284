#include "lockstep/train/profile/operator_recorder.h"

#include <deque>
#include <memory>
#include <string_view>
#include <utility>

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/device/accelerator.h"
#include "lockstep/record/profile/flops.h"

namespace lockstep {
namespace {

using Owners = std::unordered_map<const void*, std::string>;  // a tensor's module

// Read by all threads; set while no operator is recorded.
const Owners*& owners() {
  static const Owners* owners = nullptr;
  return owners;
}

// As above.
std::optional<c10::DeviceType>& awaited_type() {
  static std::optional<c10::DeviceType> type;
  return type;
}

/// The calls that a thread is in the middle of.
struct Calls {
  int depth = 0;             // of operators in each other
  bool is_in_node = false;   // of autograd's graph: its arithmetic is the operator's
  bool has_counted = false;  // an operator around this one has the arithmetic
  double flops = 0;          // of the outermost operator, so far
};

Calls& calls() {
  static thread_local Calls calls;
  return calls;
}

/// A call that the start of an operator leaves to its end.
struct Call : at::ObserverContext {
  Span span;
  bool is_outermost = false;
  bool counts = false;
};

bool is_known_tensor(const at::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

std::vector<std::int64_t> numbers_at(c10::ArrayRef<const at::IValue> inputs, std::size_t index) {
  return index < inputs.size() && inputs[index].isIntList() ? inputs[index].toIntVector()
                                                            : std::vector<std::int64_t>();
}

OperatorShapes shapes_of(std::string_view name, c10::ArrayRef<const at::IValue> inputs) {
  OperatorShapes shapes;
  for (const at::IValue& value : inputs)
    if (is_known_tensor(value)) shapes.tensors.push_back(value.toTensor().sizes().vec());
  constexpr std::size_t kStride = 3, kPadding = 4, kDilation = 5;  // of a convolution
  if (name.starts_with("aten::conv")) {
    shapes.stride = numbers_at(inputs, kStride);
    shapes.padding = numbers_at(inputs, kPadding);
    shapes.dilation = numbers_at(inputs, kDilation);
    shapes.is_padding_same = inputs.size() > kPadding && inputs[kPadding].isString() &&
                             inputs[kPadding].toStringRef() == "same";
  } else if (name == "lockstep::conv_relu_pool") {
    shapes.padding = {1};
  }
  return shapes;
}

// Backward makes as large a product for each of the two that needs a gradient.
double flops_of(std::string_view name, c10::ArrayRef<const at::IValue> inputs) {
  double times = 1;
  int seen = 0;
  constexpr int kFactors = 2;
  const bool is_added_to = name == "aten::addmm" || name == "aten::baddbmm";
  for (const at::IValue& value : inputs) {
    if (!is_known_tensor(value) || !at::GradMode::is_enabled()) continue;
    const int number = seen++ - (is_added_to ? 1 : 0);
    if (number >= 0 && number < kFactors && value.toTensor().requires_grad()) times += 1;
  }
  return times * forward_flops(name, shapes_of(name, inputs));
}

std::string owner_of(c10::ArrayRef<const at::IValue> inputs) {
  for (const at::IValue& value : inputs) {
    if (!is_known_tensor(value)) continue;
    const auto found = owners()->find(value.toTensor().unsafeGetTensorImpl());
    if (found != owners()->end()) return found->second;
  }
  return "";
}

// Of a node of C++, `torch::autograd::CppNode<a::b::Name>`, or of a part of the engine, its last
// name.
std::string short_name(std::string_view name) {
  if (!name.starts_with("torch::autograd::")) return std::string(name);
  if (name.ends_with('>')) name.remove_suffix(1);
  return std::string(name.substr(name.rfind(':') + 1));
}

// The engine reports what it does for a node, which begins with the node and ends with its hooks.
bool is_of_engine(std::string_view name) { return name.starts_with("autograd::engine::"); }

Span begun(const at::RecordFunction& function, bool is_node) {
  Span span{.name = short_name(function.name()),
      .activity = is_node ? Activity::kGradientNode : Activity::kOperator};
  if (is_node) {
    span.first_node = static_cast<std::uint64_t>(function.seqNr());
    span.maker = function.forwardThreadId();
  } else {
    span.layer = owner_of(function.inputs());
    span.first_node = at::sequence_number::peek();
  }
  span.begin = SpanRecorder::now();
  return span;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (!SpanRecorder::is_on() || is_of_engine(function.name())) return nullptr;
  const bool is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  Calls& now = calls();
  auto call = std::make_unique<Call>();
  call->is_outermost = now.depth == 0;
  call->counts = !now.has_counted && !now.is_in_node && !is_node && has_flops(function.name());
  if (call->counts) now.flops += flops_of(function.name(), function.inputs());
  now.has_counted = now.has_counted || call->counts;
  ++now.depth;
  if (call->is_outermost) {
    now.is_in_node = is_node;
    call->span = begun(function, is_node);
  }
  return call;
}

// A call whose begin was recorded is recorded to its end, also where recording stops meanwhile.
void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  auto& call = *static_cast<Call*>(context);
  Calls& now = calls();
  --now.depth;
  if (call.counts) now.has_counted = false;
  if (!call.is_outermost) return;
  Span& span = call.span;
  if (awaited_type())
    current_stream(c10::impl::VirtualGuardImpl(*awaited_type()).getDevice()).synchronize();
  span.end = SpanRecorder::now();
  const bool is_node = span.activity == Activity::kGradientNode;
  span.end_node = is_node ? span.first_node + 1 : at::sequence_number::peek();
  span.flops = std::exchange(now.flops, 0);
  now.is_in_node = false;
  SpanRecorder::add(std::move(span));
}

// `layer1.0.conv1` of `layer1.0.conv1.weight`; parameters of the model itself have no module.
std::string module_of(const std::string& tensor) {
  const auto dot = tensor.rfind('.');
  return dot == std::string::npos ? tensor : tensor.substr(0, dot);
}

// Kept for ever: a thread that loads images may be within a call that it began to record.
const Owners* kept_owners_of(const nn::NamedTensors& state) {
  static std::deque<Owners> kept;
  Owners& found = kept.emplace_back();
  for (const auto& item : state)
    found.emplace(item.value().unsafeGetTensorImpl(), module_of(item.key()));
  return &found;
}

}  // namespace

OperatorRecorder::OperatorRecorder(
    const nn::NamedTensors& state, std::optional<c10::DeviceType> awaited) {
  owners() = kept_owners_of(state);
  awaited_type() = awaited;
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(on_start, on_end)
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

OperatorRecorder::~OperatorRecorder() { at::removeCallback(handle_); }

SpanRecorder::Graph OperatorRecorder::graph() {
  return {.thread = at::RecordFunction::currentThreadId, .next_node = at::sequence_number::peek};
}

}  // namespace lockstep
