#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// An open folder; what is done relative to it stays in it, whatever becomes of its path.
///
/// The path by which one begins is the user's: open() follows links in it. Below it nothing is
/// followed, and everything must belong to the user of this process or to root: a link, another
/// user's folder or file, or something that is not a regular file is a DataError that names it, and
/// nothing blocks (a FIFO). What the operating system refuses is a std::system_error. Copies share
/// the descriptor.
class OpenDirectory {
 public:
  static OpenDirectory open(const std::filesystem::path& path);

  /// Opens a folder in this one. All names here are single names: one that leads elsewhere (`..`,
  /// `a/b`) is an InvalidArgument.
  OpenDirectory child(const std::string& name) const;

  /// Opens a regular file to read. One that is missing is a DataError.
  FileDescriptor file(const std::string& name) const;

  /// Returns whether the name is taken, even by a link to nowhere.
  bool has(const std::string& name) const;

  /// Lists all names but `.` and `..`, sorted.
  std::vector<std::string> names() const;

  /// Waits until the disk has the names; where folders cannot be synced (some network file
  /// systems), does nothing.
  void sync() const;

  /// Removes a file, a link, or a folder with all that is in it.
  void remove(const std::string& name) const;

  int descriptor() const { return folder_->get(); }
  const std::filesystem::path& path() const { return path_; }

  /// Returns the path of an entry, for messages.
  std::string path_of(const std::string& name) const { return (path_ / name).string(); }

 private:
  OpenDirectory(FileDescriptor folder, std::filesystem::path path);

  std::shared_ptr<const FileDescriptor> folder_;
  std::filesystem::path path_;
};

/// Returns whether a path is there, by asking anew: a client of a network file system believes for
/// up to a minute that a name is missing, unless the folder above is opened again.
bool is_there_now(const std::filesystem::path& path);

/// Makes a folder with the parents that are missing, and waits until the disk has their names.
/// Returns false if it was there. Throws std::system_error.
bool make_folders(const std::filesystem::path& path);

/// A file that only one process at a time works on.
struct LockedFile {
  FileDescriptor file;  ///< holds the lock until it is closed
  int refusal = 0;      ///< errno of the lock: 0, it is ours; EWOULDBLOCK, another has it
};

/// Opens a file of a folder to read and to write, made (0600) if it is missing, and asks for its
/// lock without waiting.
///
/// Once the lock is ours, the name is still that of this file: one that another process has renamed
/// or removed meanwhile is left alone. No link is followed, nothing blocks, and what is not a
/// regular file of this user with one name is an InvalidArgument.
LockedFile open_locked(const OpenDirectory& folder, const std::string& name);

}  // namespace lockstep
