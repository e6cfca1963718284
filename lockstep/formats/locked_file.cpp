#include "lockstep/formats/locked_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// In a folder that others may write, a link or a file of theirs must not become ours.
void require_own_file(const struct stat& facts, const std::string& path) {
  check(S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() && facts.st_nlink == 1, path,
      ": must be a regular file of yours with one name; remove it");
}

}  // namespace

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
