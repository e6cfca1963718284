#pragma once

#include <chrono>
#include <thread>

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

/// The same where other threads, as those of an engine, have yet to give what is needed: waits for
/// them, half a minute at most.
inline bool can_run_in_time(const c10::Stream& stream) {
  constexpr std::chrono::milliseconds kPause{1}, kPatience{30'000};
  for (auto waited = kPause; waited < kPatience && !can_run(stream); waited += kPause)
    std::this_thread::sleep_for(kPause);
  return can_run(stream);
}

}  // namespace lockstep::emulated
