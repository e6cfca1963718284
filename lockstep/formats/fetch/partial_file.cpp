#include "lockstep/formats/fetch/partial_file.h"

#include <cerrno>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

/// In a folder that others may write, a link or a file of theirs must not become ours.
std::uint64_t size_of_own_file(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", path);
  check(S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && status.st_nlink == 1, path,
      ": must be a regular file of yours with one name; remove it");
  return static_cast<std::uint64_t>(status.st_size);
}

void lock(int descriptor, const std::string& path) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return;
  check(errno != EWOULDBLOCK, path, ": another process downloads it now; wait for it");
  throw_errno("lock", path);
}

}  // namespace

PartialFile::PartialFile(const std::filesystem::path& directory, const std::string& name)
    : directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      path_((directory / concat(".", name, ".part")).string()),
      name_(name),
      part_name_(concat(".", name, ".part")) {
  check(!name.empty() && name.find('/') == std::string::npos,
      "a download needs the name of a file, without a folder: ", name);
  if (!directory_) throw_errno("open the folder", directory.string());
  // A FIFO must not block, a link must not be followed.
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  file_ = FileDescriptor(::openat(directory_.get(), part_name_.c_str(), kFlags, mode_t{0600}));
  if (!file_) throw_errno("open", path_);
  size_ = size_of_own_file(file_.get(), path_);
  lock(file_.get(), path_);
}

void PartialFile::append(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto offset = static_cast<off_t>(size_);
    const ssize_t count =
        retried([&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), offset); });
    if (count < 0) throw_errno("write", path_);
    size_ += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void PartialFile::restart() {
  if (::ftruncate(file_.get(), 0) != 0) throw_errno("truncate", path_);
  size_ = 0;
}

std::string PartialFile::sha256() const {
  FileDescriptor again(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!again || ::lseek(again.get(), 0, SEEK_SET) != 0) throw_errno("read again", path_);
  InputFile source(std::move(again), path_);
  return sha256_of(source);
}

void PartialFile::finish() {
  if (::fchmod(file_.get(), 0644) != 0) throw_errno("set the mode of", path_);
  if (::fsync(file_.get()) != 0) throw_errno("sync", path_);
  const int folder = directory_.get();
  if (::renameat2(folder, part_name_.c_str(), folder, name_.c_str(), RENAME_NOREPLACE) != 0) {
    throw_errno("rename to " + name_ + " the file", path_);
  }
  if (::fsync(folder) != 0) throw_errno("sync the folder of", path_);
}

void PartialFile::remove() {
  if (::unlinkat(directory_.get(), part_name_.c_str(), 0) != 0) throw_errno("remove", path_);
}

}  // namespace lockstep
