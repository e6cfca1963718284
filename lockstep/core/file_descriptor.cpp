#include "lockstep/core/file_descriptor.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace lockstep {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

void FileDescriptor::reset() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("make a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string read_to_end(const FileDescriptor& pipe, const std::string& action) {
  std::string text;
  char part[4096];
  while (true) {
    const ssize_t size = retried([&] { return ::read(pipe.get(), part, sizeof(part)); });
    if (size < 0) throw_errno(action);
    if (size == 0) return text;
    text.append(part, static_cast<std::size_t>(size));
  }
}

void throw_errno(const std::string& action, const std::string& object) {
  const int code = errno;
  std::string text = object.empty() ? action : action + " " + object;
  const std::size_t colon = action.rfind(": ");
  const std::size_t verb = colon == std::string::npos ? 0 : colon + 2;
  if (action.compare(verb, 6, "cannot") != 0) text.insert(verb, "cannot ");
  throw std::system_error(code, std::generic_category(), text);
}

}  // namespace lockstep
