#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace lockstep::nccl {

// As nccl.h has had them since NCCL 2.14, so that no build needs its headers; a test compares.

struct Communicator;
using Stream = void*;  ///< CUDA's

struct UniqueId {
  char bytes[128];
};

enum class Result : int { kSuccess = 0, kInProgress = 7 };

enum class Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};

enum class Operation : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kMean = 4 };

/// The configuration of a communicator; newer versions of NCCL have more members, and go by size
/// and version.
struct Config {
  static constexpr int kUndefined = std::numeric_limits<int>::min();

  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;  ///< 0: calls return kInProgress, and a thread of NCCL's goes on with them
  int cluster_size = kUndefined;
};

/// The functions of NCCL that we call; counts are of elements.
struct Api {
  Result (*version)(int*);
  Result (*get_unique_id)(UniqueId*);
  Result (*init_rank)(Communicator**, int ranks, UniqueId, int rank, Config*);
  Result (*finalize)(Communicator*);
  Result (*destroy)(Communicator*);
  Result (*abort)(Communicator*);
  Result (*async_error)(Communicator*, Result*);
  Result (*all_reduce)(const void*, void*, std::size_t, Type, Operation, Communicator*, Stream);
  Result (*reduce)(
      const void*, void*, std::size_t, Type, Operation, int root, Communicator*, Stream);
  Result (*reduce_scatter)(const void*, void*, std::size_t, Type, Operation, Communicator*, Stream);
  Result (*broadcast)(const void*, void*, std::size_t, Type, int root, Communicator*, Stream);
  Result (*all_gather)(const void*, void*, std::size_t, Type, Communicator*, Stream);
  Result (*send)(const void*, std::size_t, Type, int peer, Communicator*, Stream);
  Result (*recv)(void*, std::size_t, Type, int peer, Communicator*, Stream);
  Result (*group_start)();
  Result (*group_end)();
  const char* (*error_text)(Result);
  const char* (*last_error)(Communicator*);
};

/// Returns the functions of the NCCL that LibTorch's CUDA part brings. Throws std::system_error
/// (ENODEV) that says what to do where there is none.
const Api& api();

/// Returns NCCL's version: `2.28.9`.
std::string version();

/// Puts other functions in their place, for tests.
void use_api(const Api* functions);

}  // namespace lockstep::nccl
