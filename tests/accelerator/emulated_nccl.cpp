#include "tests/accelerator/emulated_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/accelerator/nccl_meeting.h"
#include "tests/accelerator/runtime.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/types.h>

#include "lockstep/comm/device/nccl_api.h"
#include "lockstep/comm/device/nccl_backend.h"
#include "lockstep/comm/device/routed_backend.h"

namespace lockstep::emulated {
namespace {

using nccl::Api, nccl::Communicator, nccl::Config, nccl::Operation, nccl::Result, nccl::Stream,
    nccl::Type, nccl::UniqueId;

// Tensors without elements have no address.
void* inside(const void* address) {
  if (address == nullptr) return nullptr;
  Runtime& runtime = Runtime::get();
  return runtime.memory(runtime.device_of(address)).inside(address);
}

at::Tensor view_of(const void* address, std::size_t count, torch::ScalarType type) {
  if (count == 0) return at::empty({0}, at::TensorOptions(type).device(torch::kCPU));
  return at::from_blob(inside(address), {static_cast<std::int64_t>(count)}, type);
}

torch::ScalarType type_of(Type type) {
  static const std::map<Type, torch::ScalarType> kTypes = {{Type::kInt8, torch::kChar},
      {Type::kUint8, torch::kByte}, {Type::kInt32, torch::kInt}, {Type::kInt64, torch::kLong},
      {Type::kFloat16, torch::kHalf}, {Type::kFloat32, torch::kFloat},
      {Type::kFloat64, torch::kDouble}, {Type::kBfloat16, torch::kBFloat16}};
  return kTypes.at(type);
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, Operation operation) {
  switch (operation) {
    case Operation::kProduct:
      return a * b;
    case Operation::kMax:
      return a.maximum(b);
    case Operation::kMin:
      return a.minimum(b);
    default:
      return a + b;
  }
}

at::Tensor reduced(const Parts& parts, std::size_t count, Type type, Operation operation) {
  at::Tensor result = view_of(parts[0].input, count, type_of(type)).clone();
  for (std::size_t rank = 1; rank < parts.size(); ++rank)
    result = combined(result, view_of(parts[rank].input, count, type_of(type)), operation);
  return operation == Operation::kMean ? result / static_cast<double>(parts.size()) : result;
}

std::size_t bytes_of(std::size_t count, Type type) {
  return count * c10::elementSize(type_of(type));
}

}  // namespace
}  // namespace lockstep::emulated

namespace lockstep::nccl {

struct Communicator {
  std::shared_ptr<emulated::Ring> ring;
  int rank = 0;
  bool is_blocking = false;
  emulated::Launches launches{ring};
  std::int64_t collectives = 0;                          // made so far
  std::map<int, std::int64_t> sent = {}, received = {};  // by the other rank
  std::vector<emulated::Mark> ends = {};                 // of all calls
};

}  // namespace lockstep::nccl

namespace lockstep::emulated {
namespace {

constexpr int kAll = -1;
constexpr Result kAborted{1}, kCalledTooEarly{4};

// Within a group, one rank's: begins when the group ends.
thread_local int group_depth = 0;
thread_local Communicator* of_group = nullptr;

Result end_call(Communicator* own) {
  if (group_depth > 0 || own == nullptr || !own->is_blocking) return Result::kInProgress;
  return own->launches.launch() ? Result::kSuccess : kAborted;
}

// As NCCL, takes no call before the last one is on its stream.
Result begin_call(Communicator* own, PendingCall call) {
  if (!own->launches.is_empty() && of_group != own) return kCalledTooEarly;
  if (group_depth > 0) of_group = own;
  own->ends.push_back(call.end);
  own->launches.add(std::move(call));
  return end_call(own);
}

// As the guard tells it.
std::size_t number_of(Stream stream) { return reinterpret_cast<std::size_t>(stream) - 1; }

Result meet_all(Communicator* own, const Part& given, Stream stream, const Kernel& kernel) {
  const MeetingKey key(kAll, kAll, own->collectives++);
  return begin_call(
      own, meet(own->ring, key, own->ring->ranks, own->rank, given, number_of(stream), kernel));
}

Result version(int* number) {
  *number = 21409;
  return Result::kSuccess;
}

Result get_unique_id(UniqueId* id) {
  static std::atomic<std::int64_t> next = 0;
  const std::int64_t number = ++next;
  std::memcpy(id->bytes, &number, sizeof number);
  return Result::kSuccess;
}

std::shared_ptr<Ring> ring_of(const UniqueId& id) {
  static std::mutex mutex;
  static std::map<std::int64_t, std::weak_ptr<Ring>> rings;
  std::int64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof number);
  const std::lock_guard lock(mutex);
  auto ring = rings[number].lock();
  if (!ring) rings[number] = ring = std::make_shared<Ring>();
  return ring;
}

Result init_rank(Communicator** made, int ranks, UniqueId id, int rank, Config* config) {
  const auto ring = ring_of(id);
  *made = new Communicator{ring, rank, config->blocking != 0};
  std::unique_lock lock(ring->mutex);
  ring->ranks = ranks;
  ++ring->present;
  ring->changed.notify_all();
  if (config->blocking == 0) return Result::kInProgress;
  ring->changed.wait(lock, [&] { return ring->present == ranks; });
  return Result::kSuccess;
}

bool has_ended(const Communicator& own) {
  return std::ranges::all_of(own.ends, [](Mark end) { return streams().is_reached(end); });
}

// What waits for a rank that will not come ends. One whose calls have all ended just leaves.
Result abort(Communicator* own) {
  if (!has_ended(*own)) {
    const std::lock_guard lock(own->ring->mutex);
    own->ring->is_aborted = true;
    own->ring->changed.notify_all();
    for (const auto& [key, meeting] : own->ring->meetings) streams().close(meeting.end.stream);
  }
  delete own;
  return Result::kSuccess;
}

Result finalize(Communicator*) { return Result::kInProgress; }

Result destroy(Communicator* own) {
  delete own;
  return Result::kSuccess;
}

Result state_of_ring(Ring& ring) {
  const std::lock_guard lock(ring.mutex);
  if (ring.is_aborted) return kAborted;
  return ring.present == ring.ranks ? Result::kSuccess : Result::kInProgress;
}

// What a thread of NCCL's has done meanwhile is done here, also if another rank has given up since.
Result async_error(Communicator* own, Result* error) {
  const bool had_calls = !own->launches.is_empty(), is_launched = own->launches.try_launch();
  *error = had_calls && is_launched ? Result::kSuccess : state_of_ring(*own->ring);
  if (*error == Result::kSuccess && !is_launched) *error = Result::kInProgress;
  return Result::kSuccess;
}

Result all_reduce(const void* input, void* output, std::size_t count, Type type,
    Operation operation, Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    const at::Tensor result = reduced(parts, count, type, operation);
    for (const Part& part : parts) view_of(part.output, count, type_of(type)).copy_(result);
  });
}

Result reduce(const void* input, void* output, std::size_t count, Type type, Operation operation,
    int root, Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    view_of(parts[static_cast<std::size_t>(root)].output, count, type_of(type))
        .copy_(reduced(parts, count, type, operation));
  });
}

Result reduce_scatter(const void* input, void* output, std::size_t count, Type type,
    Operation operation, Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    const auto ranks = static_cast<std::int64_t>(parts.size());
    const at::Tensor result =
        reduced(parts, count * parts.size(), type, operation).view({ranks, -1});
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      view_of(parts[static_cast<std::size_t>(rank)].output, count, type_of(type))
          .copy_(result[rank]);
  });
}

Result broadcast(const void* input, void* output, std::size_t count, Type type, int root,
    Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    const void* const source = inside(parts[static_cast<std::size_t>(root)].input);
    for (const Part& part : parts) std::memmove(inside(part.output), source, bytes_of(count, type));
  });
}

Result all_gather(const void* input, void* output, std::size_t count, Type type, Communicator* own,
    Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    const std::size_t bytes = bytes_of(count, type);
    for (const Part& to : parts)
      for (std::size_t from = 0; from < parts.size(); ++from)
        std::memmove(
            static_cast<char*>(inside(to.output)) + from * bytes, inside(parts[from].input), bytes);
  });
}

Kernel message(std::size_t count, Type type) {
  return [=](const Parts& parts) {
    std::memmove(inside(parts[1].output), inside(parts[0].input), bytes_of(count, type));
  };
}

// Both sides count the messages between them.
Result send(
    const void* data, std::size_t count, Type type, int to, Communicator* own, Stream stream) {
  const MeetingKey key(own->rank, to, own->sent[to]++);
  return begin_call(
      own, meet(own->ring, key, 2, 0, {data, nullptr}, number_of(stream), message(count, type)));
}

Result recv(void* data, std::size_t count, Type type, int from, Communicator* own, Stream stream) {
  const MeetingKey key(from, own->rank, own->received[from]++);
  return begin_call(
      own, meet(own->ring, key, 2, 1, {nullptr, data}, number_of(stream), message(count, type)));
}

Result group_start() {
  ++group_depth;
  return Result::kSuccess;
}

Result group_end() {
  if (--group_depth > 0) return Result::kSuccess;
  return end_call(std::exchange(of_group, nullptr));
}

const char* error_text(Result) { return "an error"; }
const char* last_error(Communicator*) { return ""; }

constexpr Api kApi = {&version, &get_unique_id, &init_rank, &finalize, &destroy, &abort,
    &async_error, &all_reduce, &reduce, &reduce_scatter, &broadcast, &all_gather, &send, &recv,
    &group_start, &group_end, &error_text, &last_error};

}  // namespace

UseEmulatedNccl::UseEmulatedNccl() {
  nccl::use_api(&kApi);
  register_device_backend(c10::kPrivateUse1, &make_nccl_backend);
}

UseEmulatedNccl::~UseEmulatedNccl() {
  register_device_backend(c10::kPrivateUse1, nullptr);
  nccl::use_api(nullptr);
}

}  // namespace lockstep::emulated
