#include "lockstep/formats/open_directory.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

FileDescriptor opened(int folder, const char* name, int flags) {
  return FileDescriptor(retried([&] { return ::openat(folder, name, flags); }));
}

void require_single(const std::string& name) {
  check(!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
            name.find('\0') == std::string::npos,
      "a single name is needed, not a path: ", name);
}

/// What another user made, he can change while it is used.
struct stat require_own(int descriptor, const std::string& name) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", name);
  const uid_t user = ::geteuid();
  if (status.st_uid != user && status.st_uid != 0) {
    throw DataError(concat(name, ": belongs to user ", status.st_uid, ", neither to you (", user,
        ") nor to root; files of other users are not used here: copy it, or change its owner"));
  }
  return status;
}

std::vector<std::string> names_in(DIR* folder, const std::string& path) {
  std::vector<std::string> names;
  for (errno = 0; const dirent* entry = ::readdir(folder); errno = 0) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) throw_errno("list", path);
  std::sort(names.begin(), names.end());
  return names;
}

/// In a folder that others may write, a link or a file of theirs must not become ours.
void require_own_file(const struct stat& facts, const std::string& path) {
  check(S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() && facts.st_nlink == 1, path,
      ": must be a regular file of yours with one name; remove it");
}

}  // namespace

OpenDirectory::OpenDirectory(FileDescriptor folder, std::filesystem::path path)
    : folder_(std::make_shared<const FileDescriptor>(std::move(folder))), path_(std::move(path)) {}

OpenDirectory OpenDirectory::open(const std::filesystem::path& path) {
  FileDescriptor folder = opened(AT_FDCWD, path.c_str(), kFolder);
  if (!folder) throw_errno("open the folder", path.string());
  return {std::move(folder), path};
}

OpenDirectory OpenDirectory::child(const std::string& name) const {
  require_single(name);
  FileDescriptor folder = opened(descriptor(), name.c_str(), kFolder | O_NOFOLLOW);
  if (!folder && (errno == ENOTDIR || errno == ELOOP)) {
    throw DataError(
        path_of(name) + ": is not a folder, or a link to one; links are not followed here");
  }
  if (!folder) throw_errno("open the folder", path_of(name));
  require_own(folder.get(), path_of(name));
  return {std::move(folder), path_ / name};
}

FileDescriptor OpenDirectory::file(const std::string& name) const {
  require_single(name);
  // Without O_NONBLOCK the opening of a FIFO waits for a writer, perhaps for ever.
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  FileDescriptor file = opened(descriptor(), name.c_str(), kFlags);
  if (!file && errno == ENOENT) throw DataError(path_of(name) + ": is missing");
  if (!file && errno == ELOOP) {
    throw DataError(path_of(name) + ": is a link; links are not followed here");
  }
  const bool is_special = !file && (errno == ENXIO || errno == ENODEV);  // a socket, a lost device
  if (!file && !is_special) throw_errno("open", path_of(name));
  if (is_special || !S_ISREG(require_own(file.get(), path_of(name)).st_mode)) {
    throw DataError(path_of(name) + ": is not a regular file");
  }
  return file;
}

bool OpenDirectory::has(const std::string& name) const {
  require_single(name);
  struct stat status {};
  if (::fstatat(descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (errno != ENOENT) throw_errno("look at", path_of(name));
  return false;
}

std::vector<std::string> OpenDirectory::names() const {
  // A descriptor of its own: the place in the list belongs to the descriptor.
  FileDescriptor again = opened(descriptor(), ".", kFolder);
  if (!again) throw_errno("open the folder", path_.string());
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(again.get()), &::closedir);
  if (!folder) throw_errno("list", path_.string());
  again.release();
  return names_in(folder.get(), path_.string());
}

void OpenDirectory::sync() const {
  if (retried([&] { return ::fsync(descriptor()); }) == 0 || errno == EINVAL) return;
  throw_errno("sync", path_.string());
}

void OpenDirectory::remove(const std::string& name) const {
  require_single(name);
  if (::unlinkat(descriptor(), name.c_str(), 0) == 0) return;
  if (errno != EISDIR && errno != EPERM) throw_errno("remove", path_of(name));
  const OpenDirectory folder = child(name);
  for (const std::string& entry : folder.names()) folder.remove(entry);
  if (::unlinkat(descriptor(), name.c_str(), AT_REMOVEDIR) != 0) {
    throw_errno("remove", path_of(name));
  }
}

bool is_there_now(const std::filesystem::path& path) {
  const FileDescriptor above = opened(AT_FDCWD, path.parent_path().c_str(), kFolder);
  struct stat status {};
  const auto look = [&] {
    return ::fstatat(above.get(), path.filename().c_str(), &status, AT_SYMLINK_NOFOLLOW);
  };
  if (above && look() == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) throw_errno("look at", path);
  return false;
}

bool make_folders(const std::filesystem::path& path) {
  if (!path.has_filename() && path.has_relative_path()) return make_folders(path.parent_path());
  if (path.empty() || std::filesystem::is_directory(path)) return false;
  const std::filesystem::path parent = path.parent_path();
  make_folders(parent);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) throw_errno("make the folder", path);
  // A folder may let us make names in it and not list them; then it cannot be opened.
  const FileDescriptor above = opened(AT_FDCWD, parent.empty() ? "." : parent.c_str(), kFolder);
  if (above && retried([&] { return ::fsync(above.get()); }) != 0 && errno != EINVAL)
    throw_errno("sync", parent);
  return true;
}

LockedFile open_locked(const OpenDirectory& folder, const std::string& name) {
  const std::string path = folder.path_of(name);
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  while (true) {
    const auto open = [&] { return ::openat(folder.descriptor(), name.c_str(), kFlags, 0600); };
    LockedFile opened{.file = FileDescriptor(retried(open))};
    if (!opened.file) throw_errno("open", path);
    const int descriptor = opened.file.get();
    const auto lock = [descriptor] { return ::flock(descriptor, LOCK_EX | LOCK_NB); };
    if (retried(lock) != 0) opened.refusal = errno;
    if (opened.refusal == EWOULDBLOCK) return opened;
    struct stat facts {
    }, named{};
    if (::fstat(descriptor, &facts) != 0) throw_errno("fstat", path);
    if (::fstatat(folder.descriptor(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      throw_errno("look at", path);
    }
    if (facts.st_dev != named.st_dev || facts.st_ino != named.st_ino) continue;
    require_own_file(facts, path);
    return opened;
  }
}

}  // namespace lockstep
