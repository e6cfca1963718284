#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/byte_sink.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/snapshot/manifest.h"

namespace lockstep {

/// Writes a new file of a snapshot and hashes it on the way.
class HashedFile final : public ByteSink {
 public:
  HashedFile(const OpenDirectory& folder, const std::string& name);

  /// Waits until the disk has the file and says what it holds. Write nothing afterwards.
  SnapshotFile finish();

 private:
  void put(std::span<const std::uint8_t> bytes) override;

  SnapshotFile facts_;
  OutputFile file_;
  Sha256 digest_;
};

}  // namespace lockstep
