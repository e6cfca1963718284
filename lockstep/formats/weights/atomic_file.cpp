#include "lockstep/formats/weights/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <random>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/retried.h"

namespace lockstep {
namespace {

constexpr int kAttempts = 100;

OpenDirectory folder_of(const std::filesystem::path& path) {
  return OpenDirectory::open(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : AtomicFile(folder_of(path), path.filename().string()) {}

AtomicFile::AtomicFile(OpenDirectory folder, const std::string& name)
    : folder_(std::move(folder)), name_(name) {
  open_aside();
}

AtomicFile::~AtomicFile() {
  if (!aside_.empty()) ::unlinkat(folder_.descriptor(), aside_.c_str(), 0);
}

void AtomicFile::open_aside() {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  std::random_device random;
  for (int attempt = 0; attempt < kAttempts && !file_; ++attempt) {
    const std::string aside = concat('.', name_, '.', random(), ".part");
    file_ = FileDescriptor(retried(
        [&] { return ::openat(folder_.descriptor(), aside.c_str(), kFlags, mode_t{0666}); }));
    if (!file_ && errno != EEXIST) throw_errno("create", folder_.path_of(aside));
    if (file_) aside_ = aside;
  }
  if (!file_) throw_errno("create a file beside", folder_.path_of(name_));
}

void AtomicFile::put(std::span<const std::uint8_t> bytes) {
  write_all(file_.get(), bytes, folder_.path_of(aside_));
}

void AtomicFile::commit() {
  if (retried([&] { return ::fsync(file_.get()); }) != 0) {
    throw_errno("sync", folder_.path_of(aside_));
  }
  // Some file systems tell only now that the disk is full.
  if (::close(file_.release()) != 0 && errno != EINTR) {
    throw_errno("close", folder_.path_of(aside_));
  }
  const int folder = folder_.descriptor();
  if (::renameat(folder, aside_.c_str(), folder, name_.c_str()) != 0) {
    throw_errno("rename to", folder_.path_of(name_));
  }
  aside_.clear();
  // The name of a file is safe only when its folder is on the disk, too.
  folder_.sync();
}

}  // namespace lockstep
