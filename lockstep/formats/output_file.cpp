#include "lockstep/formats/output_file.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/formats/retried.h"

namespace lockstep {
namespace {

FileDescriptor make_file(int folder, const char* path, const std::string& name) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  FileDescriptor file(retried([&] { return ::openat(folder, path, kFlags, mode_t{0644}); }));
  if (!file) throw_errno("make the file", name);
  return file;
}

}  // namespace

void write_all(int descriptor, std::span<const std::uint8_t> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t count = retried([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (count == 0) errno = EIO;  // or it would be asked for ever
    if (count <= 0) throw_errno("write", name);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

OutputFile::OutputFile(const std::filesystem::path& path)
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

}  // namespace lockstep
