#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/flags/flag_table.h"
#include "lockstep/train/evaluation/run_weights.h"
#include "lockstep/train/options/options.h"

namespace lockstep::cli {

/// A request to `lockstep eval`.
struct EvalCommand {
  TrainOptions options;  ///< begin with those of the run, if there is one
  std::string run;
  std::string weights;
  std::optional<Which> which = {};
  Split split = Split::kTest;
  std::int64_t worst = 20;
  std::string output;
  bool json = false;
};

/// Returns the flags of `lockstep eval`. Those that `lockstep train` has too are its own.
const FlagTable<EvalCommand>& eval_flags();

/// Throws InvalidArgument for a value that a flag does not take, and unless the flags name weights,
/// model and data, and a page can be written.
void check_eval(const GivenFlags& given);

}  // namespace lockstep::cli
