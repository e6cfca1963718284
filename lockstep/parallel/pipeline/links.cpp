#include "lockstep/parallel/pipeline/links.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Type.h>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/place/nested.h"

namespace lockstep {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

/// The types of the forms, in their order.
using Forms = std::tuple<Tensor, Tensors, std::pair<Tensor, Tensor>, std::tuple<Tensor>,
    std::tuple<Tensor, Tensor>, std::tuple<Tensor, Tensor, Tensor>,
    std::tuple<Tensor, Tensor, Tensor, Tensor>, std::tuple<Tensor, std::tuple<Tensor, Tensor>>>;
static_assert(std::tuple_size_v<Forms> == static_cast<std::size_t>(ValueForm::kRecurrent) + 1);

// Calls visit(a value of the form's type, form) until one returns true.
template <std::size_t... kIndex>
bool any_form(const auto& visit, std::index_sequence<kIndex...>) {
  return (visit(std::tuple_element_t<kIndex, Forms>(), static_cast<ValueForm>(kIndex)) || ...);
}

bool visit_forms(const auto& visit) {
  return any_form(visit, std::make_index_sequence<std::tuple_size_v<Forms>>());
}

constexpr std::int64_t kUndefined = -1;  // in the place of a tensor's type

void describe_tensor(std::vector<std::int64_t>& numbers, const torch::Tensor& tensor) {
  if (!tensor.defined()) {
    numbers.push_back(kUndefined);
    return;
  }
  numbers.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
  numbers.push_back(tensor.requires_grad() ? 1 : 0);
  numbers.push_back(static_cast<std::int64_t>(tensor.suggest_memory_format()));
  numbers.push_back(tensor.dim());
  numbers.insert(numbers.end(), tensor.sizes().begin(), tensor.sizes().end());
}

// Takes numbers from the front.
class Reader {
 public:
  explicit Reader(const std::vector<std::int64_t>& numbers) : numbers_(numbers) {}

  std::int64_t next(std::int64_t least, std::int64_t most) {
    if (at_ == numbers_.size()) throw CommError("pipeline: a description from a rank is too short");
    const std::int64_t number = numbers_[at_++];
    if (number < least || number > most) {
      throw CommError(concat("pipeline: a description from a rank has ", number, " where ", least,
          " to ", most, " may stand; do all ranks run the same program?"));
    }
    return number;
  }
  bool ended() const { return at_ == numbers_.size(); }

 private:
  const std::vector<std::int64_t>& numbers_;
  std::size_t at_ = 0;
};

constexpr std::int64_t kMany = std::int64_t{1} << 40;

torch::Tensor read_tensor(Reader& reader, torch::Device device) {
  const std::int64_t last_type = static_cast<std::int64_t>(at::ScalarType::NumOptions) - 1;
  const std::int64_t type = reader.next(kUndefined, last_type);
  if (type == kUndefined) return {};
  const bool requires_grad = reader.next(0, 1) == 1;
  const auto format = static_cast<at::MemoryFormat>(
      reader.next(0, static_cast<std::int64_t>(at::MemoryFormat::NumOptions) - 1));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(reader.next(0, 64)));
  for (std::int64_t& size : sizes) size = reader.next(0, kMany);
  const auto options =
      torch::TensorOptions().dtype(static_cast<at::ScalarType>(type)).device(device);
  return at::empty(sizes, options, format).set_requires_grad(requires_grad);
}

torch::Tensor tensor_of(const std::vector<std::int64_t>& numbers) {
  return torch::tensor(numbers, torch::kLong);
}

// Numbers in a payload's first message. They suffice for most payloads, and every message over a
// network costs several thread switches.
constexpr std::int64_t kFirstNumbers = 32;

// Prepends the count, and pads with zeros to the size of the first message.
std::vector<std::int64_t> with_length(std::vector<std::int64_t> numbers) {
  numbers.insert(numbers.begin(), static_cast<std::int64_t>(numbers.size()));
  numbers.resize(std::max(numbers.size(), static_cast<std::size_t>(kFirstNumbers)));
  return numbers;
}

// Memory in the order that suggest_memory_format() names, as the receiver lays it out.
torch::Tensor dense(const torch::Tensor& tensor) {
  return tensor.detach().contiguous(tensor.suggest_memory_format());
}

// The elements in the order of memory: what a message carries.
torch::Tensor flat(const torch::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

}  // namespace

std::vector<Tensor> tensors_of(torch::nn::AnyValue& value, ValueForm& form) {
  Tensors tensors;
  const bool known = visit_forms([&]<typename Type>(const Type&, ValueForm name) {
    auto* const typed = value.try_get<Type>();
    if (typed == nullptr) return false;
    tensors = lockstep::flatten(*typed);
    form = name;
    return true;
  });
  check(known, "pipeline: a stage returned a value of type ",
      c10::demangle(value.type_info().name()),
      "; pass tensors between stages, or a pair, tuple or vector of tensors");
  return tensors;
}

torch::nn::AnyValue value_of(ValueForm form, const std::vector<Tensor>& tensors) {
  torch::nn::AnyValue value{Tensor()};
  visit_forms([&]<typename Type>(Type empty, ValueForm name) {
    if (name != form) return false;
    if constexpr (std::is_same_v<Type, Tensors>) empty.resize(tensors.size());
    value = torch::nn::AnyValue(lockstep::unflatten(std::move(empty), tensors));
    return true;
  });
  return value;
}

std::vector<std::int64_t> describe(const Address& address, const Payload& payload) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(address.direction), address.stage,
      address.micro_batch, static_cast<std::int64_t>(payload.form),
      static_cast<std::int64_t>(payload.skips), static_cast<std::int64_t>(payload.values.size())};
  for (const torch::Tensor& tensor : payload.values) describe_tensor(numbers, tensor);
  return numbers;
}

std::pair<Address, Payload> read_description(
    const std::vector<std::int64_t>& numbers, torch::Device device) {
  Reader reader(numbers);
  Address address;
  address.direction = static_cast<Direction>(reader.next(0, 1));
  address.stage = static_cast<int>(reader.next(0, 1 << 20));
  address.micro_batch = static_cast<int>(reader.next(0, 1 << 20));
  Payload payload;
  payload.form =
      static_cast<ValueForm>(reader.next(0, static_cast<std::int64_t>(ValueForm::kRecurrent)));
  payload.skips = static_cast<std::size_t>(reader.next(0, 1 << 20));
  const std::int64_t count = reader.next(static_cast<std::int64_t>(payload.skips), 1 << 20);
  for (std::int64_t index = 0; index < count; ++index)
    payload.values.push_back(read_tensor(reader, device));
  if (!reader.ended()) throw CommError("pipeline: a description from a rank is too long");
  return {address, std::move(payload)};
}

torch::Tensor broadcast_described(
    const torch::Tensor& tensor, int root, const ProcessGroup& group, torch::Device device) {
  std::vector<std::int64_t> numbers;
  if (group.rank() == root) numbers = describe({}, {ValueForm::kTensor, {tensor}, 0});
  const torch::Tensor length =
      torch::full({1}, static_cast<std::int64_t>(numbers.size()), on_host(torch::kLong));
  group.broadcast(length, root).wait();
  torch::Tensor text = torch::zeros({length.item<std::int64_t>()}, on_host(torch::kLong));
  if (group.rank() == root) text = tensor_of(numbers);
  group.broadcast(text, root).wait();
  const auto* first = text.data_ptr<std::int64_t>();
  const auto [address, payload] = read_description({first, first + text.numel()}, device);
  const torch::Tensor result = group.rank() == root ? dense(tensor) : payload.values.at(0);
  if (result.numel() > 0) group.broadcast(flat(result), root).wait();
  return result;
}

void Exchange::put(const Address& address, Parcel parcel) {
  const std::lock_guard lock(mutex_);
  waiting_.insert_or_assign(address, std::move(parcel));
  arrived_.notify_all();
}

Parcel Exchange::take(const Address& address) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return stopped_ || waiting_.contains(address); });
  if (stopped_) throw PipelineStopped();
  return std::move(waiting_.extract(address).mapped());
}

void Exchange::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  waiting_.clear();
  arrived_.notify_all();
}

void Exchange::check_running() {
  const std::lock_guard lock(mutex_);
  if (stopped_) throw PipelineStopped();
}

void Exchange::restart() {
  const std::lock_guard lock(mutex_);
  stopped_ = false;
  waiting_.clear();
}

LocalLinks::LocalLinks(Exchange& exchange, const std::vector<Place>& places) : exchange_(exchange) {
  for (const Place& place : places) copiers_.emplace_back(place.device);
}

void LocalLinks::send(const Address& address, const Payload& payload) {
  PeerCopier& copier = copiers_[static_cast<std::size_t>(address.stage) % copiers_.size()];
  exchange_.put(address, {payload.form, copier(payload.values), payload.skips});
}

Payload LocalLinks::receive(const Address& address) {
  const SpanScope span(Activity::kIdle, "receive");
  const Stopwatch waiting;
  const Parcel parcel = exchange_.take(address);
  waited_seconds_ += waiting.seconds();
  return {parcel.form, parcel.values.wait(), parcel.skips};
}

GroupLinks::GroupLinks(ProcessGroup group, torch::Device device)
    : group_(std::move(group)), device_(device) {
  if (!device.is_cpu()) arriving_ = side_stream(device);
}

int GroupLinks::source_of(const Address& address) const {
  return rank_of(address.stage + (address.direction == Direction::kForward ? -1 : 1));
}

void GroupLinks::begin_send(const torch::Tensor& tensor, int to) {
  if (tensor.numel() == 0) return;
  sent_.push_back({group_.send(tensor, to), tensor});
}

void GroupLinks::send(const Address& address, const Payload& payload) {
  const SpanScope span(Activity::kCommunication, "send");
  const int to = rank_of(address.stage);
  Payload even = payload;
  for (torch::Tensor& tensor : even.values) {
    if (tensor.defined()) tensor = dense(tensor).set_requires_grad(tensor.requires_grad());
  }
  const torch::Tensor numbers = tensor_of(with_length(describe(address, even)));
  begin_send(numbers.narrow(0, 0, kFirstNumbers), to);
  begin_send(numbers.slice(0, kFirstNumbers), to);
  for (const torch::Tensor& tensor : even.values) {
    if (tensor.defined()) begin_send(flat(tensor), to);
  }
  poll();
}

// Memory that was freed is the computing stream's until it has computed so far.
std::pair<Address, Payload> GroupLinks::make_room(
    const std::vector<std::int64_t>& description) const {
  const c10::OptionalStreamGuard beside(arriving_);
  return read_description(description, device_);
}

// A message waits for what the current stream has been given.
void GroupLinks::receive_into(const torch::Tensor& tensor, int from) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  Work message = [&] {
    const c10::OptionalStreamGuard beside(arriving_);
    return group_.recv(flat(tensor), from);
  }();
  message.wait();
  if (arriving_) tensor.record_stream(current_stream(device_));
}

std::vector<std::int64_t> GroupLinks::receive_numbers(int from) {
  std::vector<std::int64_t> numbers(kFirstNumbers);
  const auto receive = [&](std::int64_t begin, std::int64_t count) {
    group_.recv(torch::from_blob(numbers.data() + begin, {count}, torch::kLong), from).wait();
  };
  receive(0, kFirstNumbers);
  const std::int64_t count = numbers.front();
  if (count < 1 || count > (1 << 24))
    throw CommError(concat("pipeline: rank ", from, " announces ", count, " numbers"));
  numbers.resize(static_cast<std::size_t>(std::max(1 + count, kFirstNumbers)));
  if (1 + count > kFirstNumbers) receive(kFirstNumbers, 1 + count - kFirstNumbers);
  return {numbers.begin() + 1, numbers.begin() + 1 + count};
}

// What was sent goes on meanwhile: whoever waits for one message of a group advances all.
Payload GroupLinks::receive(const Address& address) {
  const SpanScope span(Activity::kIdle, "receive");
  const Stopwatch waiting;
  const int from = source_of(address);
  while (!early_.contains(address)) {
    auto [sent_to, payload] = make_room(receive_numbers(from));
    for (const torch::Tensor& tensor : payload.values) receive_into(tensor, from);
    early_.emplace(sent_to, std::move(payload));
  }
  waited_seconds_ += waiting.seconds();
  return std::move(early_.extract(address).mapped());
}

void GroupLinks::poll() {
  const SpanScope span(Activity::kCommunication, "poll");
  while (!sent_.empty() && sent_.front().work.done()) {
    sent_.front().work.wait();  // throws if it failed
    sent_.pop_front();
  }
}

void GroupLinks::flush() {
  for (; !sent_.empty(); sent_.pop_front()) sent_.front().work.wait();
}

}  // namespace lockstep
