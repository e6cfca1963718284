#include "lockstep/parallel/pipeline/links.h"

#include <algorithm>
#include <utility>

#include <c10/core/StreamGuard.h>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/pipeline/payload.h"

namespace lockstep {
namespace {

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
