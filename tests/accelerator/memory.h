#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/accelerator/streams.h"

namespace lockstep::emulated {

/// The memory of one device: a range of addresses that fault, and a range where its kernels see the
/// same bytes.
class DeviceMemory {
 public:
  explicit DeviceMemory(Streams& streams);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  /// Returns memory for work of a stream: what the stream freed last comes first, whether or not
  /// its work has run. What it holds becomes NaN in the stream's order. Throws
  /// c10::OutOfMemoryError, as for GPUs, beyond kCapacity.
  void* allocate(std::size_t bytes, std::size_t stream);

  void free(void* address);

  /// Keeps the block, when it is freed, until the stream has done what was queued on it by then.
  void record(void* address, std::size_t stream);

  bool holds(const void* address) const;

  /// Returns where kernels find an address of this device.
  void* inside(const void* address) const;

  /// Returns where kernels find the first byte, and the file that other processes may map.
  const std::byte* begin() const { return inside_; }
  int file() const { return file_; }

  static constexpr std::size_t kCapacity = std::size_t{8} << 30;

 private:
  struct Block {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    std::size_t stream = 0;
    std::vector<std::size_t> users = {};
    std::vector<Mark> busy_until = {};
  };

  Block take_new(std::size_t bytes, std::size_t stream);

  Streams& streams_;
  int file_ = -1;
  std::byte* outside_ = nullptr;
  std::byte* inside_ = nullptr;
  mutable std::mutex mutex_;
  std::size_t used_ = 0;
  std::unordered_map<const void*, Block> blocks_;
  std::vector<Block> freed_;
};

/// Pinned memory of the host, known by its address. What is freed is given out again at once, the
/// last first, unless a stream was recorded that still needs it.
class PinnedMemory {
 public:
  explicit PinnedMemory(Streams& streams) : streams_(streams) {}

  void* allocate(std::size_t bytes);
  void free(void* address);

  /// Keeps a block until the stream has done what is queued on it now; false if there is none.
  bool record(void* block, std::size_t stream);

  bool holds(const void* address) const;

 private:
  struct Block {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    std::vector<Mark> busy_until = {};
  };
  Block block_of(std::size_t bytes);

  Streams& streams_;
  mutable std::mutex mutex_;
  std::map<const void*, Block> blocks_;
  std::vector<Block> freed_;
};

}  // namespace lockstep::emulated
