#include <iterator>

#include "tests/formats/fetch/archive_bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/formats/fetch/archive.h"

namespace {

namespace fs = std::filesystem;
using lockstep::testing::is_taken;
using lockstep::testing::require;

constexpr lockstep::ArchiveLimits kLimits{.entries = 100, .bytes = 1 << 20};

/// An archive and the folder into which it is unpacked; nothing else may ever be in it.
struct Yard {
  lockstep::testing::TemporaryFolder directory;
  fs::path root = directory.path() / "root";
};

void check_what_came_out(const Yard& yard) {
  require(std::distance(fs::directory_iterator(yard.directory.path()), {}) == 2);
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(yard.root)) {
    const auto kind = entry.symlink_status().type();
    require(kind == fs::file_type::regular || kind == fs::file_type::directory);
    require((entry.symlink_status().permissions() & fs::perms(07022)) == fs::perms::none);
    if (kind != fs::file_type::regular) continue;
    bytes += entry.file_size();
    ++files;
  }
  // What passes the limit is written up to the block before.
  require(bytes <= kLimits.bytes && files <= kLimits.entries);
}

void unpack(std::span<const std::uint8_t> bytes) {
  static const Yard yard;
  fs::remove_all(yard.root);
  fs::create_directory(yard.root);
  const auto archive = yard.directory.write("archive", bytes);
  is_taken([&] { lockstep::extract_archive(archive, yard.root, kLimits); });
  check_what_came_out(yard);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unpack({data, size});
  // The fuzzer does not find checksums, so that what lies behind them is tried with true ones.
  unpack(lockstep::testing::with_true_tar_checksums({data, data + size}));
  return 0;
}
