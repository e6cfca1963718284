#include "lockstep/comm/host/own_segments.h"

#include <algorithm>
#include <atomic>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::host {
namespace {

constexpr int kDescriptorBits = 24;

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

std::string label_of(std::uint64_t id) { return concat("lockstep-own-", id); }

std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return std::max<std::size_t>((bytes + kPage - 1) / kPage, 1) * kPage;
}

}  // namespace

std::shared_ptr<OwnSegments> OwnSegments::of_this_process() {
  static std::mutex mutex;
  static std::pair<pid_t, std::shared_ptr<OwnSegments>> own;
  const std::lock_guard lock(mutex);
  if (own.first != ::getpid()) own = {::getpid(), std::make_shared<OwnSegments>()};
  return own.second;
}

std::size_t OwnSegments::bytes_used() const {
  std::size_t sum = 0;
  for (const Segment& segment : segments_) sum += segment.is_free ? 0 : segment.bytes;
  return sum;
}

// The smallest that will do, and is not half empty.
OwnSegments::Segment* OwnSegments::find_free(std::size_t bytes) {
  Segment* best = nullptr;
  for (Segment& segment : segments_) {
    const bool will_do = segment.is_free && bytes <= segment.bytes && segment.bytes <= 2 * bytes;
    if (will_do && (best == nullptr || segment.bytes < best->bytes)) best = &segment;
  }
  return best;
}

OwnSegments::Segment& OwnSegments::make(std::size_t bytes) {
  const std::uint64_t id = next_id();
  MemoryFile file = make_memory_file(bytes, label_of(id));
  Mapping mapping = Mapping::shared(file.descriptor, bytes);
  ::madvise(mapping.data(), bytes, MADV_HUGEPAGE);  // only a hint: fewer page faults
  return segments_.emplace_back(Segment{id, bytes, std::move(file), std::move(mapping), true});
}

std::shared_ptr<std::byte> OwnSegments::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes = whole_pages(bytes);
  Segment* segment = find_free(bytes);
  const std::size_t used = bytes_used() + (segment != nullptr ? segment->bytes : bytes);
  most_used_ = std::max(most_used_, used);
  if (segment == nullptr) {
    trim(most_used_ - bytes);
    segment = &make(bytes);
  }
  segment->is_free = false;
  return {segment->mapping.data(),
      [owner = shared_from_this(), id = segment->id](std::byte*) { owner->give_back(id); }};
}

// In a process that fork() has made, what is freed is its parent's, and the mutex may be held.
void OwnSegments::give_back(std::uint64_t id) {
  if (::getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  const auto segment = std::ranges::find(segments_, id, &Segment::id);
  segment->is_free = !segment->is_retired;
}

void OwnSegments::trim(std::size_t most) {
  std::size_t kept = 0;
  for (const Segment& segment : segments_) kept += segment.bytes;
  while (kept > most) {
    const auto oldest = std::ranges::find(segments_, true, &Segment::is_free);
    if (oldest == segments_.end()) return;
    if (::ftruncate(oldest->file.descriptor.get(), 0) != 0) return;  // it stays, for later use
    kept -= oldest->bytes;
    segments_.erase(oldest);
  }
}

void OwnSegments::retire(const void* memory) {
  const std::lock_guard lock(mutex_);
  for (Segment& segment : segments_)
    if (segment.has(static_cast<const std::byte*>(memory), 1)) segment.is_retired = true;
}

std::optional<Exposure> OwnSegments::expose(const void* memory, std::size_t bytes) const {
  const auto* start = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  for (const Segment& segment : segments_) {
    if (!segment.has(start, bytes)) continue;
    const auto descriptor = static_cast<std::uint64_t>(segment.file.descriptor.get());
    return Exposure{Exposure::kOwn | segment.id << kDescriptorBits | descriptor,
        static_cast<std::uint64_t>(start - segment.mapping.data())};
  }
  return std::nullopt;
}

std::shared_ptr<std::byte> OthersSegments::resolve(int rank, const Exposure& exposure) {
  constexpr std::size_t kMost = 256;  // mappings: those of segments that have gone are among them
  const std::lock_guard lock(mutex_);
  auto& mapping = mapped_[{rank, exposure.segment}];
  if (!mapping) {
    const std::uint64_t named = exposure.segment & ~Exposure::kOwn;
    const auto ticket = concat(processes_[static_cast<std::size_t>(rank)], " ",
        named & ((1U << kDescriptorBits) - 1), " ", label_of(named >> kDescriptorBits));
    const auto file = open_memory_file(ticket, 1);
    mapping = std::make_shared<Mapping>(Mapping::shared(file, size_of(file)));
  }
  const std::shared_ptr<std::byte> found(mapping, mapping->data() + exposure.offset);
  if (mapped_.size() > kMost) mapped_.clear();
  return found;
}

}  // namespace lockstep::host
