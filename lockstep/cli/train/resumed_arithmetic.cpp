#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "lockstep/cli/train/train_flags.h"
#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/state/run_state.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

template <typename Enum>
std::optional<Enum> value_in(const Configuration& configuration, std::string_view key) {
  for (const auto& [flag, value] : configuration)
    for (const auto& known : names_of(Enum{}))
      if (flag == key && value == concat('"', known.name, '"')) return known.value;
  return std::nullopt;
}

// A run that says nothing of kernels had LibTorch's.
ResumedArithmetic arithmetic_in(const Configuration& configuration) {
  return {.precision = value_in<Precision>(configuration, "precision"),
      .kernels = value_in<nn::Kernels>(configuration, "kernels").value_or(nn::Kernels::kLibTorch)};
}

std::optional<ResumedArithmetic> arithmetic_of_snapshot(const fs::path& snapshot) {
  const fs::path file = snapshot / kStateFile;
  try {
    return arithmetic_in(parse_run_state(text_in(file), file).setup.configuration);
  } catch (const DataError&) {
    return std::nullopt;  // one that is cut short is not resumed from
  }
}

// A run that has no snapshot yet begins anew, but as what its folder says it is.
std::optional<ResumedArithmetic> arithmetic_of_folder(const fs::path& run) {
  const fs::path file = run / "config.toml";
  if (!fs::exists(file)) return std::nullopt;
  try {
    return arithmetic_in(parse_configuration(text_in(file), file.string()));
  } catch (const DataError&) {
    return std::nullopt;  // whoever reads it for its own sake will say so
  }
}

// Of the newest snapshot that can be read.
std::optional<ResumedArithmetic> arithmetic_of_run(const fs::path& run) {
  for (const fs::path& snapshot : snapshots_newest_first(run))
    if (auto arithmetic = arithmetic_of_snapshot(snapshot)) return arithmetic;
  return arithmetic_of_folder(run);
}

}  // namespace

std::optional<ResumedArithmetic> resumed_arithmetic(const TrainOptions& options) {
  const ResumeSettings& resume = options.resume;
  if (resume.kind == Resume::kNever) return std::nullopt;
  std::optional<ResumedArithmetic> found;
  if (resume.kind == Resume::kAuto || resume.again) found = arithmetic_of_run(options.output);
  if (found || resume.kind != Resume::kFrom) return found;
  found = arithmetic_of_run(resume.from);
  return found ? found : arithmetic_of_snapshot(resume.from);
}

}  // namespace lockstep::cli
