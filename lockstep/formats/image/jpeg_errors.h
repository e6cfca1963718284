#pragma once

// jpeglib.h needs FILE and size_t, and does not say so.
#include <cstddef>
#include <cstdio>
#include <jerror.h>
#include <jpeglib.h>
#include <new>
#include <tuple>

#include "lockstep/formats/image/error_jump.h"

namespace lockstep {

/// libjpeg's errors as they leave it; see Note [Errors of C libraries].
class JpegErrors {
 public:
  JpegErrors() {
    jpeg_std_error(&base_);
    base_.error_exit = leave;
  }

  jpeg_error_mgr* base() { return &base_; }

  /// Runs calls of libjpeg; returns false if one of them failed, with the reason in text(). No
  /// memory is a std::bad_alloc.
  template <typename Body>
  [[nodiscard]] bool run(const Body& body) {
    if (jump_.run(body)) return true;
    if (out_of_memory_) throw std::bad_alloc();
    return false;
  }

  const char* text() const { return jump_.text.data(); }

  /// Ends the body that runs, with libjpeg's message.
  [[noreturn]] static void leave(j_common_ptr info) {
    ErrorJump& jump = jump_of(info);
    static_assert(std::tuple_size_v<ErrorJump::Text> >= JMSG_LENGTH_MAX);
    info->err->format_message(info, jump.text.data());
    reinterpret_cast<JpegErrors*>(info->err)->out_of_memory_ =
        info->err->msg_code == JERR_OUT_OF_MEMORY;
    jump.leave();
  }

  static ErrorJump& jump_of(j_common_ptr info) {
    return reinterpret_cast<JpegErrors*>(info->err)->jump_;
  }

 private:
  jpeg_error_mgr base_{};  // first: libjpeg knows only this
  ErrorJump jump_;
  bool out_of_memory_ = false;
};

}  // namespace lockstep
