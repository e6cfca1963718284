#pragma once

#include <array>
#include <csetjmp>

namespace lockstep {

// Note [Errors of C libraries]
// libjpeg and libpng report an error by a function that must not return, and C code cannot be left
// by an exception. So that function jumps to where run() was called, and the caller throws. Between
// the two there may be no object with a destructor: bodies hold references and numbers alone, and
// each is a few calls of the library.

/// The way of an error from a C library to the C++ code that called it.
class ErrorJump {
 public:
  using Text = std::array<char, 256>;

  /// Runs calls of the library; false if one of them ended in leave().
  template <typename Body>
  [[nodiscard]] bool run(const Body& body) {
    if (setjmp(place_) != 0) return false;
    body();
    return true;
  }

  /// Ends the running body; for the library's error functions alone.
  [[noreturn]] void leave() { std::longjmp(place_, 1); }

  /// Holds what the library said, ended by 0.
  Text text{};

 private:
  std::jmp_buf place_{};
};

}  // namespace lockstep
