#pragma once

#include <string>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/cli/train/train_flags.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::testing {

/// Returns the words of a line, between single spaces.
inline std::vector<std::string> words_of(const std::string& line) {
  return line.empty() ? std::vector<std::string>() : split(line, ' ');
}

/// Returns what the flags of `lockstep train` come to, on one rank unless another number is given.
inline TrainOptions parsed(const std::vector<std::string>& words, int ranks = 1, int restarts = 0) {
  const cli::TrainSurroundings around{
      .world_size = ranks, .local_world_size = ranks, .unix_time = 0, .restart_count = restarts};
  return cli::parse_train_flags(words, around).value().options;
}
inline TrainOptions parsed(const std::string& line, int ranks = 1, int restarts = 0) {
  return parsed(words_of(line), ranks, restarts);
}

/// Returns the message with which they are refused.
inline std::string refusal(const std::string& line, int ranks = 1) {
  return message_of<InvalidArgument>([&] { parsed(line, ranks); });
}

}  // namespace lockstep::testing
