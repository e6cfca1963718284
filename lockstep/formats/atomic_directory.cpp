#include "lockstep/formats/atomic_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Takes away what a trailing slash adds: an empty file name.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void require_free(const fs::path& target) {
  const auto status = fs::symlink_status(target);
  if (!fs::exists(status)) return;
  check(
      fs::is_directory(status) && fs::is_empty(target), target.string(),
      ": is there already and is not an empty folder; name another one, or move it away");
}

FileDescriptor open_directory(const fs::path& path) {
  FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) throw_errno("open the folder", path.string());
  return directory;
}

}  // namespace

AtomicDirectory::AtomicDirectory(const fs::path& target) : target_(without_slash(target)) {
  check(
      !target_.empty() && target_.filename() != "." && target_.filename() != "..",
      "the folder to make must have a name of its own: ", target.string());
  require_free(target_);
  const fs::path parent = parent_of(target_);
  fs::create_directories(parent);
  std::string name = (parent / concat(".", target_.filename().string(), ".XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) throw_errno("make a folder", name);
  path_ = name;
}

AtomicDirectory::~AtomicDirectory() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void AtomicDirectory::commit() {
  const FileDescriptor directory = open_directory(path_);
  if (::fchmod(directory.get(), 0755) != 0) throw_errno("set the mode of", path_.string());
  // One wait for all files: a sync for each of a million would take hours.
  if (::syncfs(directory.get()) != 0) throw_errno("sync", path_.string());
  // rename() takes the place of an empty directory and of nothing else.
  if (::rename(path_.c_str(), target_.c_str()) != 0) throw_errno("rename to", target_.string());
  committed_ = true;
  const FileDescriptor parent = open_directory(parent_of(target_));
  if (::fsync(parent.get()) != 0) throw_errno("sync", parent_of(target_).string());
}

}  // namespace lockstep
