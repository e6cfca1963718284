#include <cstdlib>
#include <string>

#include "tests/snapshot/saved_snapshot.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// What is accepted keeps all promises, and is written and read as the same again.
void read(const std::string& text) {
  try {
    const lockstep::SnapshotManifest manifest = lockstep::parse_manifest(text, "fuzz");
    require(manifest.step >= 0 && !manifest.files.empty());
    for (const lockstep::SnapshotFile& file : manifest.files) {
      require(lockstep::is_file_name(file.name) && lockstep::is_sha256(file.sha256));
    }
    require(text == lockstep::testing::with_true_digest(text));
    require(lockstep::parse_manifest(lockstep::to_json(manifest), "again") == manifest);
  } catch (const lockstep::DataError&) {
    // Refused.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  // The fuzzer does not find digests, so that what lies behind them is tried with true ones.
  read(lockstep::testing::with_true_digest(text));
  return 0;
}
