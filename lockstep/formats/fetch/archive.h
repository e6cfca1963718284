#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// Limits of what an archive may become.
struct ArchiveLimits {
  std::uint64_t entries = 2'000'000;
  std::uint64_t bytes = std::uint64_t{1} << 40;
  std::uint64_t ratio = 100;  ///< bytes out per byte in, after the first MiB
  std::size_t path_bytes = 1024;
  std::size_t depth = 32;  ///< folders within folders
};

/// The files that were unpacked.
struct Unpacked {
  std::uint64_t files = 0;
  std::uint64_t folders = 0;
  std::uint64_t bytes = 0;
};

/// Unpacks a tar file, plain or gzip, or a zip file into an empty folder.
///
/// Only regular files (0644, or 0755 if executable) and folders come out, nothing outside the
/// folder; with `top` every entry must lie in that folder of the archive, which is left out. A
/// link, device, FIFO, setuid file, sparse file, a name that is there twice, leaves the folder or
/// is too long, and whatever passes the limits is a DataError that names archive and entry. What
/// was written until then stays.
Unpacked extract_archive(const std::filesystem::path& archive, const std::filesystem::path& folder,
    const ArchiveLimits& limits = {}, const std::string& top = "");

}  // namespace lockstep
