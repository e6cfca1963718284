#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "bench/experiment/cell.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {

/// The words of a command.
using Words = std::vector<std::string>;

/// Adds a part to a command: a word, a number, or words.
template <class Part>
void add_words(Words& words, const Part& part) {
  words.push_back(concat(part));
}
inline void add_words(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// Makes a command of words, numbers and lists of words.
///
///     train_command("--model", "resnet50", "--batch-size", 32, spreading_flags("ddp", 2))
template <class... Parts>
Words words_of(const Parts&... parts) {
  Words words;
  (add_words(words, parts), ...);
  return words;
}
template <class... Parts>
Words train_command(const Parts&... parts) {
  return words_of("train", parts...);
}

/// Returns the flags by which `lockstep train` spreads over this many places: dp, ddp, or serial.
Words spreading_flags(const std::string& way, int places);

/// Returns the cell with its training on a type of device; empty: as it is. Its name tells, so that
/// samples of another device are not taken for its own.
StudyCell on_device(StudyCell cell, const std::string& device);

/// Says why hosts that are made within this machine do not train on its devices.
inline constexpr const char* kSharedDevices =
    "hosts of this machine would share its devices; name others by --nodes";

/// Returns how many cores a place is: a fourth of them, so that up to four places differ in nothing
/// else, and at least one.
inline int cores_a_place(int cores) { return std::max(1, cores / 4); }

/// Returns the variable that limits the threads of a process.
inline Words threads(int count) { return {concat("OMP_NUM_THREADS=", count)}; }

}  // namespace lockstep::bench
