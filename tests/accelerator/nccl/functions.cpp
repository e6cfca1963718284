// NCCL's functions on the emulated streams; nccl_api.h says what each takes.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/accelerator/emulated_nccl.h"
#include "tests/accelerator/nccl/ring.h"
#include "tests/accelerator/runtime.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/types.h>

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
  return at::from_blob(const_cast<void*>(address), {static_cast<std::int64_t>(count)}, type);
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
  bool is_blocking = false;
  emulated::Launches launches{ring};
  std::map<std::pair<emulated::Place*, int>, std::int64_t> calls = {};  // so far, by part
  std::vector<emulated::Mark> ends = {};                                // of all calls
};

}  // namespace lockstep::nccl

namespace lockstep::emulated {
namespace {

constexpr Result kAborted{1}, kSystemError{2}, kInvalid{4};

// Within a group, one rank's: begins when the group ends.
thread_local int group_depth = 0;
thread_local Communicator* of_group = nullptr;

Result end_call(Communicator* own) {
  if (group_depth > 0 || own == nullptr || !own->is_blocking) return Result::kInProgress;
  return own->launches.launch() ? Result::kSuccess : kAborted;
}

/// A rank's part in a call, and how many take part.
struct Role {
  Place& place;
  int part, parts;
};

// As the guard tells it.
std::size_t number_of(Stream stream) { return reinterpret_cast<std::size_t>(stream) - 1; }

// As NCCL, takes no call before the last one is on its stream.
Result begin_call(
    Communicator* own, const Role& role, const Part& given, Stream stream, const Kernel& kernel) {
  if (!own->launches.is_empty() && of_group != own) return kInvalid;
  if (group_depth > 0) of_group = own;
  const std::int64_t number = own->calls[{&role.place, role.part}]++;
  own->ends.push_back(streams().make_open());
  own->launches.add({{&role.place, role.part, role.parts, number,
                         {inside(given.input), inside(given.output)}, kernel},
      number_of(stream), own->ends.back()});
  return end_call(own);
}

Result meet_all(Communicator* own, const Part& given, Stream stream, const Kernel& kernel) {
  const Ring& ring = *own->ring;
  return begin_call(own, {ring.collectives(), ring.rank(), ring.ranks()}, given, stream, kernel);
}

bool has_ended(const Communicator& own) {
  return std::ranges::all_of(own.ends, [](Mark end) { return streams().is_reached(end); });
}

Result state_of_ring(Ring& ring) {
  if (ring.is_aborted()) return kAborted;
  return ring.is_complete() ? Result::kSuccess : Result::kInProgress;
}

// As NCCL does.
void report(const Ring& ring) {
  const char* const asked = std::getenv("NCCL_DEBUG");
  if (asked != nullptr && std::strcmp(asked, "INFO") == 0)
    std::fprintf(stderr, "emulated nccl: rank %d of %d on device %d\n", ring.rank(), ring.ranks(),
        int{Runtime::get().current_device()});
}

Kernel message(std::size_t count, Type type) {
  return [=](const Parts& parts) {
    std::memmove(parts[1].output, parts[0].input, bytes_of(count, type));
  };
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's.
extern "C" {

Result ncclGetVersion(int* number) {
  *number = 21409;
  return Result::kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) try {
  *id = Ring::make();
  return Result::kSuccess;
} catch (const std::system_error&) {
  return kSystemError;
}

Result ncclCommInitRankConfig(
    Communicator** made, int ranks, UniqueId id, int rank, Config* config) try {
  if (ranks > static_cast<int>(kMostRanks)) return kInvalid;
  *made = new Communicator{std::make_shared<Ring>(id, ranks, rank), config->blocking != 0};
  report(*(*made)->ring);
  Result state = state_of_ring(*(*made)->ring);
  while (config->blocking != 0 && state == Result::kInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state = state_of_ring(*(*made)->ring);
  }
  return state;
} catch (const std::system_error&) {
  return kSystemError;
}

Result ncclCommFinalize(Communicator*) { return Result::kInProgress; }

Result ncclCommDestroy(Communicator* own) {
  delete own;
  return Result::kSuccess;
}

// What waits for a rank that will not come ends. One whose calls have all ended just leaves.
Result ncclCommAbort(Communicator* own) {
  if (!has_ended(*own)) own->ring->abort();
  return ncclCommDestroy(own);
}

// What a thread of NCCL's has done meanwhile is done here, also if another rank has given up since.
Result ncclCommGetAsyncError(Communicator* own, Result* error) try {
  const bool had_calls = !own->launches.is_empty(), is_launched = own->launches.try_launch();
  *error = had_calls && is_launched ? Result::kSuccess : state_of_ring(*own->ring);
  if (*error == Result::kSuccess && !is_launched) *error = Result::kInProgress;
  return Result::kSuccess;
} catch (const std::system_error&) {
  *error = kSystemError;
  return Result::kSuccess;
}

Result ncclAllReduce(const void* input, void* output, std::size_t count, Type type,
    Operation operation, Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    const at::Tensor result = reduced(parts, count, type, operation);
    for (const Part& part : parts) view_of(part.output, count, type_of(type)).copy_(result);
  });
}

Result ncclReduce(const void* input, void* output, std::size_t count, Type type,
    Operation operation, int root, Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    view_of(parts[static_cast<std::size_t>(root)].output, count, type_of(type))
        .copy_(reduced(parts, count, type, operation));
  });
}

Result ncclReduceScatter(const void* input, void* output, std::size_t count, Type type,
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

Result ncclBroadcast(const void* input, void* output, std::size_t count, Type type, int root,
    Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    const void* const source = parts[static_cast<std::size_t>(root)].input;
    for (const Part& part : parts) std::memmove(part.output, source, bytes_of(count, type));
  });
}

Result ncclAllGather(const void* input, void* output, std::size_t count, Type type,
    Communicator* own, Stream stream) {
  return meet_all(own, {input, output}, stream, [=](const Parts& parts) {
    const std::size_t bytes = bytes_of(count, type);
    for (const Part& to : parts)
      for (std::size_t from = 0; from < parts.size(); ++from)
        std::memmove(static_cast<char*>(to.output) + from * bytes, parts[from].input, bytes);
  });
}

// Both sides count the messages between them.
Result ncclSend(
    const void* data, std::size_t count, Type type, int to, Communicator* own, Stream stream) {
  return begin_call(own, {own->ring->messages(own->ring->rank(), to), 0, 2}, {data, nullptr},
      stream, message(count, type));
}

Result ncclRecv(
    void* data, std::size_t count, Type type, int from, Communicator* own, Stream stream) {
  return begin_call(own, {own->ring->messages(from, own->ring->rank()), 1, 2}, {nullptr, data},
      stream, message(count, type));
}

Result ncclGroupStart() {
  ++group_depth;
  return Result::kSuccess;
}

Result ncclGroupEnd() {
  if (--group_depth > 0) return Result::kSuccess;
  return end_call(std::exchange(of_group, nullptr));
}

const char* ncclGetErrorString(Result) { return "an error"; }
const char* ncclGetLastError(Communicator*) { return ""; }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)

const Api kNcclFunctions = {&ncclGetVersion, &ncclGetUniqueId, &ncclCommInitRankConfig,
    &ncclCommFinalize, &ncclCommDestroy, &ncclCommAbort, &ncclCommGetAsyncError, &ncclAllReduce,
    &ncclReduce, &ncclReduceScatter, &ncclBroadcast, &ncclAllGather, &ncclSend, &ncclRecv,
    &ncclGroupStart, &ncclGroupEnd, &ncclGetErrorString, &ncclGetLastError};

}  // namespace lockstep::emulated
