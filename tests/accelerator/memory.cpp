#include "tests/accelerator/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <c10/util/Exception.h>

namespace lockstep::emulated {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr int kPoison = 0xFF;  // NaN in every floating-point type, -1 in integers

std::size_t rounded(std::size_t bytes) {
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

std::byte* mapped(int file, int protection) {
  void* address =
      ::mmap(nullptr, DeviceMemory::kCapacity, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "emulated accelerator: map memory");
  return static_cast<std::byte*>(address);
}

/// Takes a block that fits and that no stream uses any more; the last one freed first: what uses it
/// too late is found soonest.
template <typename Block, typename Fits>
std::optional<Block> take_freed(std::vector<Block>& freed, Streams& streams, const Fits& fits) {
  const auto found = std::find_if(freed.rbegin(), freed.rend(), [&](const Block& block) {
    return fits(block) && std::ranges::all_of(block.busy_until,
                              [&](Mark mark) { return streams.is_reached(mark); });
  });
  if (found == freed.rend()) return std::nullopt;
  Block block = *found;
  freed.erase(std::next(found).base());
  block.busy_until.clear();
  return block;
}

}  // namespace

DeviceMemory::DeviceMemory(Streams& streams) : streams_(streams) {
  file_ = ::memfd_create("emulated accelerator", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(kCapacity)) != 0)
    throw std::system_error(errno, std::generic_category(), "emulated accelerator: make memory");
  outside_ = mapped(file_, PROT_NONE);
  inside_ = mapped(file_, PROT_READ | PROT_WRITE);
}

DeviceMemory::~DeviceMemory() {
  ::munmap(outside_, kCapacity);
  ::munmap(inside_, kCapacity);
  ::close(file_);
}

void* DeviceMemory::allocate(std::size_t bytes, std::size_t stream) {
  const std::lock_guard lock(mutex_);
  const std::size_t size = rounded(bytes);
  const std::optional<Block> freed = take_freed(freed_, streams_,
      [&](const Block& block) { return block.bytes == size && block.stream == stream; });
  Block block = freed ? *freed : take_new(size, stream);
  std::byte* const kernels_view = inside_ + block.offset;
  streams_.enqueue(stream, [kernels_view, size] { std::memset(kernels_view, kPoison, size); });
  void* const address = outside_ + block.offset;
  blocks_.emplace(address, std::move(block));
  return address;
}

void DeviceMemory::free(void* address) {
  const std::lock_guard lock(mutex_);
  auto node = blocks_.extract(address);
  Block& block = node.mapped();
  for (const std::size_t user : block.users) block.busy_until.push_back(streams_.mark(user));
  block.users.clear();
  freed_.push_back(std::move(block));
}

void DeviceMemory::record(void* address, std::size_t stream) {
  const std::lock_guard lock(mutex_);
  // As CUDA's: what this did not allocate, such as a part of it with a storage of its own, is
  // passed.
  const auto found = blocks_.find(address);
  if (found != blocks_.end()) found->second.users.push_back(stream);
}

bool DeviceMemory::holds(const void* address) const {
  return address >= outside_ && address < outside_ + kCapacity;
}

void* DeviceMemory::inside(const void* address) const {
  return inside_ + (static_cast<const std::byte*>(address) - outside_);
}

DeviceMemory::Block DeviceMemory::take_new(std::size_t bytes, std::size_t stream) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= kCapacity - used_,
      "emulated accelerator: tried to allocate ", bytes >> 20, " MiB of ", kCapacity >> 20);
  const std::size_t offset = std::exchange(used_, used_ + bytes);
  std::memset(inside_ + offset, kPoison, bytes);
  return {.offset = offset, .bytes = bytes, .stream = stream};
}

void* PinnedMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Block block = block_of(rounded(bytes));
  void* const address = block.address;
  blocks_.emplace(address, std::move(block));
  return address;
}

PinnedMemory::Block PinnedMemory::block_of(std::size_t bytes) {
  const auto freed =
      take_freed(freed_, streams_, [&](const Block& block) { return block.bytes == bytes; });
  if (freed) return *freed;
  auto* const address = static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
  if (address == nullptr) throw std::bad_alloc();
  return {address, bytes};
}

void PinnedMemory::free(void* address) {
  const std::lock_guard lock(mutex_);
  freed_.push_back(std::move(blocks_.extract(address).mapped()));
}

bool PinnedMemory::record(void* block, std::size_t stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return false;
  found->second.busy_until.push_back(streams_.mark(stream));
  return true;
}

bool PinnedMemory::holds(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  const Block& block = std::prev(after)->second;
  return static_cast<const std::byte*>(address) < block.address + block.bytes;
}

}  // namespace lockstep::emulated
