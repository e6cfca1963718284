#include "lockstep/comm/host/address_space.h"

#include <sstream>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::host {

struct SymmetricMemory::Segment {
  std::uint64_t id;
  std::size_t bytes;
  std::vector<Mapping> of_rank;
};

namespace {

std::string name_of(const FileDescriptor& file) { return concat(::getpid(), " ", file.get()); }

FileDescriptor open_named(const std::string& name) {
  std::istringstream text(name);
  int process = 0, descriptor = -1;
  if (!(text >> process >> descriptor))
    throw CommError("shared memory: a rank sent no name: " + name);
  return open_memory_file(process, descriptor);
}

}  // namespace

SymmetricMemory::SymmetricMemory(int rank, int size) : rank_(rank), size_(size) {}

std::optional<Exposure> SymmetricMemory::expose(const void* memory, std::size_t bytes) const {
  const auto* start = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  for (const auto& weak : segments_) {
    const auto segment = weak.lock();
    if (!segment) continue;
    const std::byte* base = segment->of_rank[static_cast<std::size_t>(rank_)].data();
    if (start >= base && start + bytes <= base + segment->bytes) {
      return Exposure{segment->id, static_cast<std::uint64_t>(start - base)};
    }
  }
  return std::nullopt;
}

std::byte* SymmetricMemory::resolve(int rank, const Exposure& exposure) const {
  const std::lock_guard lock(mutex_);
  for (const auto& weak : segments_) {
    const auto segment = weak.lock();
    if (segment && segment->id == exposure.segment) {
      return segment->of_rank[static_cast<std::size_t>(rank)].data() + exposure.offset;
    }
  }
  throw CommError(concat("rank ", rank, " uses shared memory that rank ", rank_, " has released"));
}

torch::Tensor SymmetricMemory::empty(
    std::int64_t elements, const torch::TensorOptions& options, const ExchangeText& exchange) {
  const std::size_t wanted = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  const auto segment = std::make_shared<Segment>(Segment{0, std::max<std::size_t>(wanted, 1), {}});
  const FileDescriptor own = make_memory_file(segment->bytes);
  // The second exchange keeps each file open until everyone has mapped it.
  for (const std::string& name : exchange(name_of(own))) {
    segment->of_rank.push_back(Mapping::shared(open_named(name), segment->bytes));
  }
  exchange("mapped");
  std::byte* data = segment->of_rank[static_cast<std::size_t>(rank_)].data();
  ::madvise(data, segment->bytes, MADV_HUGEPAGE);  // only a hint: fewer page faults
  const std::lock_guard lock(mutex_);
  segment->id = next_++;
  std::erase_if(segments_, [](const auto& weak) { return weak.expired(); });
  segments_.push_back(segment);
  return torch::from_blob(
      data, {elements}, [segment](void*) {}, options);
}

}  // namespace lockstep::host
