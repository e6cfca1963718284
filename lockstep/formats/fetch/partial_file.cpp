#include "lockstep/formats/fetch/partial_file.h"

#include <cerrno>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/locked_file.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

FileDescriptor locked(const OpenDirectory& directory, const std::string& part_name) {
  LockedFile opened = open_locked(directory, part_name);
  const std::string path = directory.path_of(part_name);
  check(opened.refusal != EWOULDBLOCK, path,
      ": another process is downloading it; wait for it to finish");
  errno = opened.refusal;
  if (errno != 0) throw_errno("lock", path);
  return std::move(opened.file);
}

std::uint64_t size_of(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", path);
  return static_cast<std::uint64_t>(status.st_size);
}

std::string checked_name(const std::string& name) {
  check(!name.empty() && name.find('/') == std::string::npos,
      "a download needs the name of a file, without a folder: ", name);
  return name;
}

}  // namespace

PartialFile::PartialFile(const std::filesystem::path& directory, const std::string& name)
    : directory_(OpenDirectory::open(directory)),
      name_(checked_name(name)),
      part_name_(concat(".", name, ".part")),
      path_(directory_.path_of(part_name_)),
      file_(locked(directory_, part_name_)),
      size_(size_of(file_.get(), path_)) {}

void PartialFile::append(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto offset = static_cast<off_t>(size_);
    const ssize_t count =
        retried([&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), offset); });
    if (count < 0) throw_errno("write", path_);
    sign_of_life();
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
  rename();
  directory_.sync();
}

// NFS, CephFS and others know no renaming that spares what is there; a second name spares it, too.
void PartialFile::rename() const {
  const int folder = directory_.descriptor();
  const char *part = part_name_.c_str(), *whole = name_.c_str();
  if (::renameat2(folder, part, folder, whole, RENAME_NOREPLACE) == 0) return;
  const bool is_unknown = errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
  if (!is_unknown || ::linkat(folder, part, folder, whole, 0) != 0)
    throw_errno("rename to " + name_ + " the file", path_);
  if (::unlinkat(folder, part, 0) != 0) throw_errno("remove the first name of " + name_, path_);
}

void PartialFile::remove() {
  if (::unlinkat(directory_.descriptor(), part_name_.c_str(), 0) != 0) throw_errno("remove", path_);
}

}  // namespace lockstep
