#pragma once

#include <cerrno>
#include <string>
#include <utility>

namespace lockstep {

/// The owner of one descriptor of the operating system, which it closes.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

  /// Gives up the descriptor; the caller closes it.
  int release() noexcept { return std::exchange(descriptor_, -1); }

  /// Closes it now; errors of close are ignored, as nothing can be done about them.
  void reset() noexcept;

 private:
  int descriptor_ = -1;
};

/// Makes a call of the operating system again as long as a signal interrupts it.
template <typename Call>
auto retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// The two ends of a pipe.
struct Pipe {
  FileDescriptor reader, writer;
};

/// Makes a pipe that programs which this one executes do not inherit. Throws std::system_error.
Pipe make_pipe();

/// Reads a pipe until all who could write have closed it. Throws std::system_error with this
/// action.
std::string read_to_end(const FileDescriptor& pipe, const std::string& action);

/// Throws std::system_error for errno: `ACTION OBJECT: reason`.
[[noreturn]] void throw_errno(const std::string& action, const std::string& object = "");

}  // namespace lockstep
