#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Draws numbers for mutations; the same seed gives the same ones everywhere.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}

  /// Returns a number from 0 to bound - 1.
  std::size_t below(std::size_t bound) { return engine_() % bound; }

  template <typename T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[below(choices.size())];
  }

 private:
  std::mt19937 engine_;
};

/// Changes, removes, adds or copies bytes within a part of a file.
inline void mutate_bytes(std::string& bytes, std::size_t begin, std::size_t end, Dice& dice) {
  end = std::min(end, bytes.size());
  if (begin >= end) return;
  static const std::string kTelling("\0\1\2\7\x08\x7f\x80\xfe\xff", 9);
  const std::size_t at = begin + dice.below(end - begin);
  switch (dice.below(7)) {
    case 0:
      bytes[at] = static_cast<char>(dice.below(256));
      break;
    case 1:
      bytes[at] = kTelling[dice.below(kTelling.size())];
      break;
    case 2:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << dice.below(8)));
      break;
    case 3:
      bytes.erase(at, 1 + dice.below(4));
      break;
    case 4:
      bytes.insert(at, 1, static_cast<char>(dice.below(256)));
      break;
    case 5:
      bytes.insert(at, bytes.substr(begin + dice.below(end - begin), 1 + dice.below(16)));
      break;
    default:
      std::swap(bytes[at], bytes[begin + dice.below(end - begin)]);
      break;
  }
}

}  // namespace lockstep::testing
