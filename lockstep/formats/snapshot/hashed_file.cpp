#include "lockstep/formats/snapshot/hashed_file.h"

#include <algorithm>

namespace lockstep {
namespace {

// Small enough that what was hashed is still in the processor's cache when it is written.
constexpr std::size_t kPiece = std::size_t{1} << 18;

}  // namespace

HashedFile::HashedFile(const OpenDirectory& folder, const std::string& name)
    : facts_{.name = name, .bytes = 0, .sha256 = {}}, file_(folder, name) {}

void HashedFile::put(std::span<const std::uint8_t> bytes) {
  facts_.bytes += bytes.size();
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    digest_.update(piece);
    file_.write(piece);
    bytes = bytes.subspan(piece.size());
  }
}

SnapshotFile HashedFile::finish() {
  file_.sync();
  file_.close();
  facts_.sha256 = digest_.finish();
  return facts_;
}

}  // namespace lockstep
