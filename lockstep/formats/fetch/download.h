#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// The file `.NAME.part` in which a download grows, even over several runs.
///
/// It is a regular file of this user alone (0600, one name, no link), and locked: a second download
/// of the same file at the same time is an InvalidArgument. Failures of the disk are
/// std::system_error. What is not finished stays, for the next run to go on.
class PartialFile {
 public:
  PartialFile(const std::filesystem::path& directory, const std::string& name);

  std::uint64_t size() const { return size_; }

  /// Adds bytes at the end.
  void append(std::span<const std::uint8_t> bytes);

  /// Forgets all bytes.
  void restart();

  /// Reads the whole file again and gives its SHA-256.
  std::string sha256() const;

  /// Makes the file durable and gives it its name; what has that name already stays, and is a
  /// std::system_error.
  void finish();

  /// Removes the file.
  void remove();

 private:
  void rename() const;

  OpenDirectory directory_;
  std::string name_;
  std::string part_name_;
  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

/// A file on the net: its addresses, and what its content must be.
struct Download {
  std::string name;                    ///< of the file, without a folder
  std::vector<std::string> addresses;  ///< asked in turn
  std::uint64_t bytes = 0;
  std::string sha256;
};

/// Options of download().
struct DownloadOptions {
  int attempts = 4;  ///< at each address, for failures that may pass
  std::chrono::milliseconds first_pause = std::chrono::seconds(1);  ///< doubles each time, to 30 s
  std::chrono::seconds slow_time =
      std::chrono::seconds(15);        ///< under 1000 bytes/s for so long ends it
  std::filesystem::path certificates;  ///< PEM file of authorities, instead of the system's
  bool plain_on_loopback = false;      ///< http:// to this host alone: for tests
  std::function<void(std::uint64_t bytes, std::uint64_t of)> progress;  ///< called for each piece
  std::function<void(const std::string& text)> notice;  ///< hears why something is tried again
};

/// Downloads a file into a folder, which it makes; returns false if the right file is there
/// already.
///
/// Bytes grow in `.NAME.part`, where a later call goes on, and get the name only when size and
/// SHA-256 are right: more bytes than there must be end the transfer at once. Content that is wrong
/// at every address is a DataError with both hashes, and is removed; a file of that name with other
/// content is one too, and stays. A server that cannot be reached is a std::system_error.
bool download(const Download& wanted, const std::filesystem::path& directory,
    const DownloadOptions& options = {});

}  // namespace lockstep
