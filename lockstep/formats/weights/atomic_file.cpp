#include "lockstep/formats/weights/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <random>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr int kAttempts = 100;

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// The name of a file is safe only when its folder is on the disk, too.
void sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (!file) throw_errno("open", folder.string());
  if (::fsync(file.get()) != 0) throw_errno("fsync", folder.string());
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) { open_aside(); }

AtomicFile::~AtomicFile() {
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void AtomicFile::open_aside() {
  std::random_device random;
  for (int attempt = 0; attempt < kAttempts && !file_; ++attempt) {
    auto aside = folder_of(path_) / concat('.', path_.filename().string(), '.', random(), ".part");
    file_ = FileDescriptor(
        ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file_ && errno != EEXIST) throw_errno("create", aside.string());
    if (file_) aside_ = std::move(aside);
  }
  if (!file_) throw_errno("create a file beside", path_.string());
}

void AtomicFile::write(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_errno("write", aside_.string());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::write(const std::string& bytes) {
  write(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
}

void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) throw_errno("fsync", aside_.string());
  // Some file systems tell only now that the disk is full.
  if (::close(file_.release()) != 0) throw_errno("close", aside_.string());
  if (::rename(aside_.c_str(), path_.c_str()) != 0) throw_errno("rename to", path_.string());
  aside_.clear();
  sync_folder(folder_of(path_));
}

}  // namespace lockstep
