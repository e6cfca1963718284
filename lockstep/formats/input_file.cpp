#include "lockstep/formats/input_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_not_opened(const std::string& name) {
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENAMETOOLONG || code == ENXIO) {
    refuse_at(
        name, 0, "cannot be opened: ", std::generic_category().message(code), "; check the path");
  }
  throw_errno("open", name);
}

void require_regular(int descriptor, const std::string& name) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", name);
  if (S_ISREG(status.st_mode)) return;
  const char* kind = S_ISDIR(status.st_mode)    ? "a directory"
                     : S_ISFIFO(status.st_mode) ? "a FIFO"
                                                : "a device";
  refuse_at(name, 0, "a regular file is needed, this is ", kind);
}

}  // namespace

FileDescriptor open_regular_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK the opening of a FIFO waits for a writer, perhaps for ever.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) throw_not_opened(path.string());
  require_regular(file.get(), path.string());
  return file;
}

InputFile::InputFile(const std::filesystem::path& path)
    : name_(path.string()), file_(open_regular_file(path)) {}

std::size_t InputFile::read(std::span<std::uint8_t> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const auto rest = out.subspan(filled);
    const ssize_t count = retried([&] { return ::read(file_.get(), rest.data(), rest.size()); });
    if (count < 0) throw_errno("read", name_);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

}  // namespace lockstep
