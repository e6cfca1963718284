#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/byte_sink.h"
#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// Writes a file that is either complete or not there: aside, synced to the disk, then renamed.
///
/// Without commit() nothing is left; after SIGKILL a file `.NAME.NUMBER.part` may be. What the
/// operating system refuses is a std::system_error.
///
///     AtomicFile file(path);
///     file.write(bytes);
///     file.commit();
class AtomicFile final : public ByteSink {
 public:
  explicit AtomicFile(const std::filesystem::path& path);

  /// Does the same in an open folder; `name` is one name, without a folder.
  AtomicFile(OpenDirectory folder, const std::string& name);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() override;

  /// Puts the file into its place, also if one is there already. Write nothing afterwards.
  void commit();

 private:
  void put(std::span<const std::uint8_t> bytes) override;
  void open_aside();

  OpenDirectory folder_;
  std::string name_;
  std::string aside_;
  FileDescriptor file_;
};

}  // namespace lockstep
