#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/formats/fetch/transfer.h"

namespace lockstep {

/// A file on the net: its addresses, and what its content must be.
struct Download {
  std::string name;                    ///< of the file, without a folder
  std::vector<std::string> addresses;  ///< asked in turn
  std::uint64_t bytes = 0;
  std::string sha256;
};

/// Options of download().
struct DownloadOptions {
  TransferOptions transfer;
  int attempts = 4;  ///< at each address, for failures that may pass
  std::chrono::milliseconds first_pause = std::chrono::seconds(1);  ///< doubles each time
  std::chrono::milliseconds longest_pause = std::chrono::seconds(30);
  std::function<void(std::uint64_t bytes, std::uint64_t of)> progress;  ///< called for each piece
  std::function<void(const std::string& text)> notice;  ///< hears why something is tried again
};

/// Brings a file into a folder, which it makes; false if it was there already and right.
///
/// Bytes grow in `.NAME.part`, where a later call goes on, and get the name only when size and
/// SHA-256 are right: more bytes than there must be end the transfer at once. Content that is wrong
/// at every address is a DataError with both hashes, and is removed; a file of that name with other
/// content is one too, and stays. A server that cannot be reached is a std::system_error.
bool download(const Download& wanted, const std::filesystem::path& directory,
    const DownloadOptions& options = {});

}  // namespace lockstep
