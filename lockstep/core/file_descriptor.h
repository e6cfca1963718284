#pragma once

#include <cerrno>
#include <string>
#include <utility>

namespace lockstep {

/// Owns one descriptor of the operating system and closes it once.
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

  /// Gives the descriptor away; the caller closes it.
  int release() noexcept { return std::exchange(descriptor_, -1); }

  /// Closes now; errors of close are ignored, as nothing can be done about them.
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

/// Throws std::system_error made of errno: `ACTION OBJECT: reason`.
[[noreturn]] void throw_errno(const std::string& action, const std::string& object = "");

}  // namespace lockstep
