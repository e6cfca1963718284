#include "lockstep/train/profile/step_profiler.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/device/parameters.h"
#include "lockstep/parallel/balance/layer_costs.h"
#include "lockstep/snapshot/group_values.h"

namespace lockstep {

namespace {

constexpr int kTimedPasses = 5;

// A chain that lacks parameters is a function around a net that cannot be cut.
nn::Layers chain_of(const nn::Model& model) {
  nn::Layers layers = model->layers();
  if (parameters_of(layers).size() == parameters_of(*model).size()) return layers;
  nn::Layers whole;
  whole.insert("net", torch::nn::AnyModule(model));
  return whole;
}

// As --precision names them.
const char* name_of_type(torch::ScalarType type) {
  if (type == torch::kFloat) return "float32";
  return type == torch::kBFloat16 ? "bfloat16" : "float16";
}

// Without an index: the current one of the thread that asks.
torch::Device device_of(const std::vector<Place>& places) {
  return places.empty() ? torch::kCPU : torch::Device(places.front().device.type());
}

}  // namespace

std::vector<LayerCosts> chain_costs(const nn::Model& model, const ChainInput& input) {
  return layer_costs(chain_of(model), input, kTimedPasses);
}

StepProfiler::StepProfiler(const nn::NamedTensors& state, ProcessGroup world,
    std::vector<Place> places, torch::ScalarType type)
    : state_(state),
      world_(std::move(world)),
      places_(std::move(places)),
      type_(type),
      device_(device_of(places_)),
      is_recorder_(world_.backend_name() != "threads" || world_.rank() == 0) {}

// All ranks are here at once: so their clocks, which are of several machines, begin together.
void StepProfiler::begin_measuring() {
  world_.barrier().wait();
  start_ = SpanRecorder::now();
  if (!is_recorder_) return;
  SpanRecorder::set_graph(OperatorRecorder::graph());
  operators_.emplace(state_, device_.is_cpu() ? std::nullopt : std::optional(device_.type()));
}

// Those between warm-up and measuring.
void StepProfiler::time_unwaited_steps() {
  const bool begins = step_ == kWarmUp + 1, has_ended = step_ == steps_before() + 1;
  if (!begins && !has_ended) return;
  synchronize(device_);
  const std::int64_t now = SpanRecorder::now();
  if (begins) timed_from_ = now;
  if (has_ended) unwaited_step_ = static_cast<double>(now - timed_from_) / 1e6 / kMeasured;
}

void StepProfiler::begin_step() {
  ++step_;
  if (!device_.is_cpu()) time_unwaited_steps();
  if (!records()) return;
  if (start_ == 0) begin_measuring();
  begin_ = SpanRecorder::now();
  if (is_recorder_) SpanRecorder::start();
}

void StepProfiler::end_step(const ChainInput& input) {
  if (!records()) return;
  ++measured_;
  if (input_.tensors.empty() || input_.batch_size() < input.batch_size()) input_ = input;
  if (!is_recorder_) return;
  synchronize(device_);
  SpanRecorder::stop();
  SpanRecorder::add({.name = concat("step ", step_),
      .activity = Activity::kStep,
      .begin = begin_,
      .end = SpanRecorder::now()});
  if (measured_ == kMeasured) operators_.reset();
}

// In all places at once, as the steps are: they share memory and the processor's clock.
double StepProfiler::peak() const {
  world_.barrier().wait();
  if (places_.size() < 2)
    return product_flops_per_second(places_.empty() ? torch::kCPU : places_.front().device, type_);
  std::vector<std::unique_ptr<PlaceWorker>> workers;
  std::vector<double> rates(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    workers.push_back(std::make_unique<PlaceWorker>(places_[i], "peak"));
    workers.back()->begin(
        [&, i] { rates[i] = product_flops_per_second(places_[i].device, type_); });
  }
  double sum = 0;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    workers[i]->wait();
    sum += rates[i];
  }
  return sum;
}

std::optional<ProfileFiles> StepProfiler::finish(const ChainMeasurement& chain) {
  SpanRecorder::stop();
  operators_.reset();
  if (measured_ == 0) return std::nullopt;
  RunProfile own{.precision = name_of_type(type_)};
  std::string events;
  if (is_recorder_) {
    const std::vector<SpanLane> lanes = SpanRecorder::take();
    events = trace_events(world_.rank(), lanes, start_);
    own.ranks.push_back(profile_of(lanes));
    own.ranks.front().rank = world_.rank();
    own.ranks.front().unwaited_step = unwaited_step_;
  }
  // The arithmetic of ranks that are threads is in the profile of the first.
  const torch::Tensor peak_here = at::full({1}, peak(), on_host(torch::kDouble));
  if (world_.backend_name() == "threads") world_.all_reduce(peak_here).wait();
  world_.barrier().wait();
  const std::vector<LayerCosts> layers = chain(input_);
  if (is_recorder_) {
    RankProfile& rank = own.ranks.front();
    rank.peak = peak_here.item<double>();
    rank.chain = layers;
    if (!layers.empty()) rank.batch = input_.batch_size();
  }
  const auto profiles = gather_texts(is_recorder_ ? profile_json(own) : "", 0, world_);
  const auto traces = gather_texts(events, 0, world_);
  if (world_.rank() != 0) return std::nullopt;
  ProfileFiles files{.profile = {.precision = own.precision}, .trace = trace_file(traces)};
  for (const std::string& text : profiles) {
    if (text.empty()) continue;
    for (RankProfile& rank : read_profile(text, "profile").ranks)
      files.profile.ranks.push_back(std::move(rank));
  }
  return files;
}

namespace {

using Shape = std::vector<std::int64_t>;

constexpr double kOperations = 2;  // a multiplication and an addition

double product(const Shape& shape, std::size_t from = 0) {
  double product = 1;
  for (std::size_t i = from; i < shape.size(); ++i) product *= static_cast<double>(shape[i]);
  return product;
}

std::int64_t value_at(const Shape& list, std::size_t axis, std::int64_t usual) {
  if (list.empty()) return usual;
  return list.size() == 1 ? list.front() : list.at(axis);
}

// Along one axis; PyTorch's rule.
std::int64_t outputs(
    const OperatorShapes& shapes, std::size_t axis, std::int64_t size, std::int64_t kernel) {
  const std::int64_t stride = value_at(shapes.stride, axis, 1);
  if (shapes.is_padding_same) return size;
  const std::int64_t reach = value_at(shapes.dilation, axis, 1) * (kernel - 1) + 1;
  const std::int64_t padded = size + 2 * value_at(shapes.padding, axis, 0);
  return padded < reach || stride < 1 ? 0 : (padded - reach) / stride + 1;
}

// [N, C, ...] or [C, ...], with [K, C / groups, ...].
double convolution(const OperatorShapes& shapes) {
  const Shape &input = shapes.tensors[0], &weight = shapes.tensors[1];
  if (weight.size() < 3 || input.size() + 1 < weight.size()) return 0;
  const std::size_t axes = weight.size() - 2;
  double pixels = input.size() == weight.size() ? static_cast<double>(input[0]) : 1;
  for (std::size_t axis = 0; axis < axes; ++axis)
    pixels *= static_cast<double>(
        outputs(shapes, axis, input[input.size() - axes + axis], weight[2 + axis]));
  return kOperations * pixels * product(weight);
}

// [N, C, ...] or [C, ...], with [C, K / groups, ...]: each number of the input meets those of its
// channel.
double transposed_convolution(const OperatorShapes& shapes) {
  const Shape& weight = shapes.tensors[1];
  return kOperations * product(shapes.tensors[0]) * product(weight) /
         static_cast<double>(std::max<std::int64_t>(weight.front(), 1));
}

// [..., I] with [O, I].
double linear(const OperatorShapes& shapes) {
  return kOperations * product(shapes.tensors[0]) * static_cast<double>(shapes.tensors[1].front());
}

// [..., M, K] with [..., K, N]; a matrix beside a batch of them is used for each.
double matrices(const Shape& a, const Shape& b) {
  if (a.empty() || b.empty()) return 0;
  const double columns = b.size() < 2 ? 1 : static_cast<double>(b.back());
  if (a.size() >= b.size()) return kOperations * product(a) * columns;
  const double rows = a.size() < 2 ? 1 : static_cast<double>(a[a.size() - 2]);
  return kOperations * product(b) * rows;
}

double of_two(const OperatorShapes& shapes) {
  return matrices(shapes.tensors[0], shapes.tensors[1]);
}

double after_the_first(const OperatorShapes& shapes) {
  return shapes.tensors.size() < 3 ? 0 : matrices(shapes.tensors[1], shapes.tensors[2]);
}

// Queries [..., L, E], keys [..., S, E], values [..., S, V].
double attention(const OperatorShapes& shapes) {
  if (shapes.tensors.size() < 3) return 0;
  const Shape &keys = shapes.tensors[1], &values = shapes.tensors[2];
  if (keys.size() < 2 || values.empty()) return 0;
  const auto length = static_cast<double>(keys[keys.size() - 2]);
  const Shape& queries = shapes.tensors[0];
  const double rows = product(queries) / static_cast<double>(queries.back());
  return kOperations * rows * length * static_cast<double>(queries.back() + values.back());
}

// Queries, keys and values in one: [N, L, 3, heads, E].
double packed_attention(const OperatorShapes& shapes) {
  const Shape& packed = shapes.tensors.front();
  return 4 * product(packed) / 3 * static_cast<double>(packed[1]);
}

struct Counted {
  std::string_view name;
  double (*flops)(const OperatorShapes&);
  std::size_t tensors = 2;  ///< that it has at least
};

// That of ours has no name of LibTorch's: its convolution is a 3x3 one with padding 1.
constexpr Counted kCounted[] = {{"aten::conv1d", convolution}, {"aten::conv2d", convolution},
    {"aten::conv3d", convolution}, {"lockstep::conv_relu_pool", convolution},
    {"aten::conv_transpose1d", transposed_convolution},
    {"aten::conv_transpose2d", transposed_convolution},
    {"aten::conv_transpose3d", transposed_convolution}, {"aten::linear", linear},
    {"aten::mm", of_two}, {"aten::bmm", of_two}, {"aten::matmul", of_two},
    {"aten::addmm", after_the_first}, {"aten::baddbmm", after_the_first},
    {"aten::scaled_dot_product_attention", attention},
    {"lockstep::packed_attention", packed_attention, 1}};

const Counted* find_counted(std::string_view name) {
  for (const Counted& each : kCounted)
    if (each.name == name) return &each;
  return nullptr;
}

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

// Backward makes as large a product for each of the two factors that needs a gradient; packed
// attention has both in one.
double flops_of(std::string_view name, c10::ArrayRef<const at::IValue> inputs) {
  double times = 1;
  int seen = 0;
  constexpr int kFactors = 2;
  const int factors_in_each = name == "lockstep::packed_attention" ? kFactors : 1;
  const bool is_added_to = name == "aten::addmm" || name == "aten::baddbmm";
  for (const at::IValue& value : inputs) {
    if (!is_known_tensor(value) || !at::GradMode::is_enabled()) continue;
    const int number = seen++ - (is_added_to ? 1 : 0);
    if (number >= 0 && number < kFactors && value.toTensor().requires_grad())
      times += factors_in_each;
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
  call->counts =
      !now.has_counted && !now.is_in_node && !is_node && find_counted(function.name()) != nullptr;
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

double forward_flops(std::string_view name, const OperatorShapes& shapes) {
  const Counted* const found = find_counted(name);
  if (found == nullptr || shapes.tensors.size() < found->tensors) return 0;
  for (std::size_t i = 0; i < found->tensors; ++i)
    if (shapes.tensors[i].empty()) return 0;
  return found->flops(shapes);
}

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
