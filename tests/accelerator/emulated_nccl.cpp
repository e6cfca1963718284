#include "tests/accelerator/emulated_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
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

using nccl::Api, nccl::Communicator, nccl::Operation, nccl::Result, nccl::Stream, nccl::Type,
    nccl::UniqueId;

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
  std::int64_t collectives = 0;                          // made so far
  std::map<int, std::int64_t> sent = {}, received = {};  // by the other rank
  std::vector<emulated::Mark> ends = {};                 // of all calls
};

}  // namespace lockstep::nccl

namespace lockstep::emulated {
namespace {

constexpr int kAll = -1;

// As the guard tells it.
std::size_t number_of(Stream stream) { return reinterpret_cast<std::size_t>(stream) - 1; }

Result meet_all(Communicator* own, const Part& given, Stream stream, const Kernel& kernel) {
  const MeetingKey key(kAll, kAll, own->collectives++);
  own->ends.push_back(
      meet(own->ring, key, own->ring->ranks, own->rank, given, number_of(stream), kernel));
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

Result init_rank(Communicator** made, int ranks, UniqueId id, int rank) {
  const auto ring = ring_of(id);
  std::unique_lock lock(ring->mutex);
  ring->ranks = ranks;
  ++ring->present;
  ring->joined.notify_all();
  ring->joined.wait(lock, [&] { return ring->present == ranks; });
  *made = new Communicator{ring, rank};
  return Result::kSuccess;
}

// What waits for a rank that will not come ends. One whose calls have all ended just leaves.
Result abort(Communicator* own) {
  const bool has_ended =
      std::ranges::all_of(own->ends, [](Mark end) { return streams().is_reached(end); });
  if (!has_ended) {
    const std::lock_guard lock(own->ring->mutex);
    own->ring->is_aborted = true;
    for (const auto& [key, meeting] : own->ring->meetings) streams().close(meeting.end.stream);
  }
  delete own;
  return Result::kSuccess;
}

Result async_error(Communicator* own, Result* error) {
  const std::lock_guard lock(own->ring->mutex);
  *error = own->ring->is_aborted ? Result{1} : Result::kSuccess;
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
  own->ends.push_back(
      meet(own->ring, key, 2, 0, {data, nullptr}, number_of(stream), message(count, type)));
  return Result::kSuccess;
}

Result recv(void* data, std::size_t count, Type type, int from, Communicator* own, Stream stream) {
  const MeetingKey key(from, own->rank, own->received[from]++);
  own->ends.push_back(
      meet(own->ring, key, 2, 1, {nullptr, data}, number_of(stream), message(count, type)));
  return Result::kSuccess;
}

Result group_start() {
  begin_group();
  return Result::kSuccess;
}

Result group_end() {
  end_group();
  return Result::kSuccess;
}

const char* error_text(Result) { return "an error"; }
const char* last_error(Communicator*) { return ""; }

constexpr Api kApi = {&get_unique_id, &init_rank, &abort, &async_error, &all_reduce, &reduce,
    &reduce_scatter, &broadcast, &all_gather, &send, &recv, &group_start, &group_end, &error_text,
    &last_error};

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
