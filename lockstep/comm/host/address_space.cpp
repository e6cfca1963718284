#include "lockstep/comm/host/address_space.h"

#include <sys/mman.h>

#include "lockstep/core/error.h"

namespace lockstep::host {

struct SymmetricMemory::Segment {
  std::uint64_t id;
  std::size_t bytes;
  std::vector<Mapping> of_rank;
};

namespace {

// What a rank asks for stands before its ticket, so that they can be compared.
void check_same_request(const std::vector<std::string>& texts) {
  const auto request = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    check(request(texts[rank]) == request(texts[0]),
        "empty: the ranks ask for different tensors: rank 0 for ", request(texts[0]), ", rank ",
        rank, " for ", request(texts[rank]));
  }
}

}  // namespace

SymmetricMemory::SymmetricMemory(int rank) : rank_(rank) {}

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

std::shared_ptr<std::byte> SymmetricMemory::resolve(int rank, const Exposure& exposure) const {
  const std::lock_guard lock(mutex_);
  for (const auto& weak : segments_) {
    const auto segment = weak.lock();
    if (segment && segment->id == exposure.segment) {
      return {segment, segment->of_rank[static_cast<std::size_t>(rank)].data() + exposure.offset};
    }
  }
  throw CommError(concat("rank ", rank, " uses shared memory that rank ", rank_, " has released"));
}

torch::Tensor SymmetricMemory::empty(
    std::int64_t elements, const torch::TensorOptions& options, const ExchangeText& exchange) {
  const std::size_t wanted = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  const auto segment = std::make_shared<Segment>(Segment{0, std::max<std::size_t>(wanted, 1), {}});
  const MemoryFile own = make_memory_file(segment->bytes);
  const auto texts = exchange(concat(elements, " ", options.dtype().name(), "\n", own.ticket));
  check_same_request(texts);
  for (const std::string& text : texts) {
    const auto file = open_memory_file(text.substr(text.find('\n') + 1), segment->bytes);
    segment->of_rank.push_back(Mapping::shared(file, segment->bytes));
  }
  // The second exchange keeps each file open until everyone has mapped it.
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
