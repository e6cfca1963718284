#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// Writes all of the bytes to an open file; `name` stands in the std::system_error of a failure.
void write_all(int descriptor, std::span<const std::uint8_t> bytes, const std::string& name);

/// A new file; what is there already, even a link, is never written over.
///
/// Every failure (a path that is taken, a full disk) is a std::system_error that names the file.
class OutputFile final : public ByteSink {
 public:
  /// Makes the file; nobody else may write it (0644, less what the umask takes).
  explicit OutputFile(const std::filesystem::path& path);

  /// Does the same in an open folder; `name` is one name, without a folder.
  OutputFile(const OpenDirectory& folder, const std::string& name);

  /// Takes a new file that is open already; `name` stands in messages.
  OutputFile(FileDescriptor file, std::string name)
      : name_(std::move(name)), file_(std::move(file)) {}

  /// Waits until the disk has what was written. When it throws, the file must be written anew,
  /// under another name: a second call may succeed although the bytes are lost.
  void sync();

  /// Closes the file: the last place where a failure can still be reported.
  void close();

 private:
  void put(std::span<const std::uint8_t> bytes) override;

  std::string name_;
  FileDescriptor file_;
};

/// A file that is either complete or not there: written aside, synced to the disk, then renamed.
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
  std::optional<OutputFile> file_;
};

/// Writes a whole file: readers see the old one or the new one, never a part.
void replace_file(const std::filesystem::path& path, std::string_view text);

/// A directory that appears whole or not at all.
///
/// Files are written into path(), a fresh directory beside the target that only its owner may
/// enter; commit() makes them durable and gives them the target's name. What was not committed is
/// removed with all that is in it.
///
///     AtomicDirectory directory("data/cifar10");
///     OutputFile(directory.path() / "train.bin").write(bytes);
///     directory.commit();
class AtomicDirectory {
 public:
  /// Makes the fresh directory, and the target's parents if they are missing. A target that is
  /// there and is no empty directory is an InvalidArgument.
  explicit AtomicDirectory(const std::filesystem::path& target);
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  ~AtomicDirectory();

  const std::filesystem::path& path() const { return path_; }

  /// Waits until the disk has all files, then renames. Throws std::system_error; the target is
  /// then as it was.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  bool committed_ = false;
};

}  // namespace lockstep
