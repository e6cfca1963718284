#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/image_samples.h"

namespace lockstep {

/// Tells of image files that could not be read and were skipped, each once.
class BadImageWatch {
 public:
  explicit BadImageWatch(std::vector<std::shared_ptr<const data::FolderSamples>> folders);

  /// Gives a line for each bad file that this rank has met since the last call.
  std::vector<std::string> news();

  /// Counts the bad files that any rank has met; a file that several met counts once. A collective.
  std::int64_t count(const ProcessGroup& world) const;

 private:
  std::vector<std::shared_ptr<const data::FolderSamples>> folders_;
  std::set<std::pair<std::size_t, std::int64_t>> told_;
};

}  // namespace lockstep
