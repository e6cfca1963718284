#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/comm/host/shared_region.h"

namespace lockstep::host {

/// The memory that one process makes without the others, which map it when they first need it.
///
/// Note [Own segments]
/// A segment is a memory file that stays open: an exposure has its number and its descriptor, by
/// which the others open it through this process. Fresh pages cost more than a collective, so what
/// no tensor uses any more serves the next one of about that size. As much stays as was ever in use
/// at once; the file of what goes is made empty, since the others may have it mapped. What was in a
/// collective that failed stays as it is: a rank that is slow to notice may still use it.
class OwnSegments : public std::enable_shared_from_this<OwnSegments> {
 public:
  /// Returns those of this process, for all of its groups. A process that fork() has made has its
  /// own, though it sees its parent's memory.
  static std::shared_ptr<OwnSegments> of_this_process();

  /// Returns memory of at least this size, which goes back with the last copy of the pointer.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);

  /// Takes the segment of this memory, if it is of here, out of use for ever.
  void retire(const void* memory);

  /// Names the memory for the other ranks; nothing if it is not of here.
  std::optional<Exposure> expose(const void* memory, std::size_t bytes) const;

 private:
  struct Segment {
    std::uint64_t id;
    std::size_t bytes;
    MemoryFile file;
    Mapping mapping;
    bool is_free;
    bool is_retired = false;

    bool has(const std::byte* start, std::size_t length) const {
      return start >= mapping.data() && start + length <= mapping.data() + bytes;
    }
  };

  Segment* find_free(std::size_t bytes);
  Segment& make(std::size_t bytes);
  void give_back(std::uint64_t id);
  void trim(std::size_t most);
  std::size_t bytes_used() const;

  const pid_t process_ = ::getpid();
  mutable std::mutex mutex_;
  std::vector<Segment> segments_;
  std::size_t most_used_ = 0;  ///< bytes
};

/// The segments that the processes of other ranks have made, as this rank sees them.
class OthersSegments {
 public:
  explicit OthersSegments(std::vector<int> processes) : processes_(std::move(processes)) {}

  /// Finds what a rank's OwnSegments exposed; it stays mapped as long as somebody has the result.
  std::shared_ptr<std::byte> resolve(int rank, const Exposure& exposure);

 private:
  std::vector<int> processes_;
  std::mutex mutex_;
  std::map<std::pair<int, std::uint64_t>, std::shared_ptr<Mapping>> mapped_;
};

}  // namespace lockstep::host
