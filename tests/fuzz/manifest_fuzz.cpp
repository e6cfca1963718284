#include <string>

#include "tests/fuzz/fuzz.h"
#include "tests/snapshot/saved_snapshot.h"

#include "lockstep/formats/checksum.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace {

using lockstep::testing::require;
using lockstep::testing::text_of;

/// What is accepted keeps all promises, and is written and read as the same again.
void read(const std::string& text) {
  lockstep::testing::is_taken([&] {
    const lockstep::SnapshotManifest manifest = lockstep::parse_manifest(text, "fuzz");
    require(manifest.step >= 0 && !manifest.files.empty());
    for (const lockstep::SnapshotFile& file : manifest.files) {
      require(lockstep::is_file_name(file.name) && lockstep::is_sha256(file.sha256));
    }
    require(text == lockstep::testing::with_true_digest(text));
    require(lockstep::parse_manifest(lockstep::to_json(manifest), "again") == manifest);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = text_of(data, size);
  read(text);
  // The fuzzer does not find digests, so that what lies behind them is tried with true ones.
  read(lockstep::testing::with_true_digest(text));
  return 0;
}
