#pragma once

#include "tests/accelerator/runtime.h"

namespace lockstep::emulated {

/// A kernel on a stream that does not end before somebody opens the gate: what the stream is given
/// later, and what waits for that, cannot run. So a test shows what does not wait for it.
class Gate {
 public:
  explicit Gate(const c10::Stream& stream) : end_(streams().make_open()) {
    streams().wait(Runtime::get().number_of(stream), end_);
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() { streams().close(end_.stream); }

 private:
  Mark end_;
};

/// Runs what is on the stream, and what that needs, up to gates; returns whether all of it has run.
inline bool can_run(const c10::Stream& stream) {
  constexpr int kPieces = 100'000;  // more than a test gives to all streams
  const Mark end = streams().mark(Runtime::get().number_of(stream));
  for (int piece = 0; piece < kPieces && !streams().query(end); ++piece) {
  }
  return streams().is_reached(end);
}

}  // namespace lockstep::emulated
