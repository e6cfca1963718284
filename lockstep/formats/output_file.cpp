#include "lockstep/formats/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <random>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 100;

FileDescriptor open_new(int folder, const char* path, mode_t mode) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  return FileDescriptor(retried([&] { return ::openat(folder, path, kFlags, mode); }));
}

FileDescriptor make_file(int folder, const char* path, const std::string& name) {
  FileDescriptor file = open_new(folder, path, 0644);
  if (!file) throw_errno("make the file", name);
  return file;
}

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
  check(fs::is_directory(status) && fs::is_empty(target), target.string(),
      ": already exists and is not an empty folder; name another one, or move it away");
}

}  // namespace

void write_all(int descriptor, std::span<const std::uint8_t> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t count = retried([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (count == 0) errno = EIO;  // or this loop would never end
    if (count <= 0) throw_errno("write", name);
    sign_of_life();
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

OutputFile::OutputFile(const fs::path& path)
    : name_(path.string()), file_(make_file(AT_FDCWD, path.c_str(), name_)) {}

OutputFile::OutputFile(const OpenDirectory& folder, const std::string& name)
    : name_(folder.path_of(name)), file_(make_file(folder.descriptor(), name.c_str(), name_)) {}

void OutputFile::put(std::span<const std::uint8_t> bytes) { write_all(file_.get(), bytes, name_); }

void OutputFile::sync() {
  if (retried([&] { return ::fsync(file_.get()); }) != 0) throw_errno("sync", name_);
}

void OutputFile::close() {
  // Linux closes the file also when a signal interrupts it; to close it again might hit another.
  if (::close(file_.release()) != 0 && errno != EINTR) throw_errno("close", name_);
}

AtomicFile::AtomicFile(const fs::path& path)
    : AtomicFile(OpenDirectory::open(parent_of(path)), path.filename().string()) {}

AtomicFile::AtomicFile(OpenDirectory folder, const std::string& name)
    : folder_(std::move(folder)), name_(name) {
  open_aside();
}

AtomicFile::~AtomicFile() {
  if (!aside_.empty()) ::unlinkat(folder_.descriptor(), aside_.c_str(), 0);
}

void AtomicFile::open_aside() {
  std::random_device random;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string aside = concat('.', name_, '.', random(), ".part");
    FileDescriptor file = open_new(folder_.descriptor(), aside.c_str(), 0666);
    if (file) {
      aside_ = aside;
      file_.emplace(std::move(file), folder_.path_of(aside));
      return;
    }
    if (errno != EEXIST) throw_errno("create", folder_.path_of(aside));
  }
  throw_errno("create a file next to", folder_.path_of(name_));
}

void AtomicFile::put(std::span<const std::uint8_t> bytes) { file_->write(bytes); }

void AtomicFile::commit() {
  file_->sync();
  file_->close();  // some file systems report only now that the disk is full
  const int folder = folder_.descriptor();
  if (::renameat(folder, aside_.c_str(), folder, name_.c_str()) != 0) {
    throw_errno("rename to", folder_.path_of(name_));
  }
  aside_.clear();
  // The name of a file is safe only when its folder is on the disk, too.
  folder_.sync();
}

void replace_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AtomicDirectory::AtomicDirectory(const fs::path& target) : target_(without_slash(target)) {
  check(!target_.empty() && target_.filename() != "." && target_.filename() != "..",
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
  const OpenDirectory directory = OpenDirectory::open(path_);
  if (::fchmod(directory.descriptor(), 0755) != 0) throw_errno("set the mode of", path_.string());
  // One wait for all files: a sync for each of a million would take hours.
  if (::syncfs(directory.descriptor()) != 0) throw_errno("sync", path_.string());
  // rename() takes the place of an empty directory and of nothing else.
  if (::rename(path_.c_str(), target_.c_str()) != 0) throw_errno("rename to", target_.string());
  committed_ = true;
  OpenDirectory::open(parent_of(target_)).sync();
}

}  // namespace lockstep
