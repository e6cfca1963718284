#pragma once

#include <filesystem>

namespace lockstep {

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
