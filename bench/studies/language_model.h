#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// What training a language model costs: tokens a second and memory of a rank, by sequence length
/// and by way of spreading over ranks.
namespace lockstep::bench::language_model {

inline constexpr const char* kRate = "tokens_per_s";
inline constexpr const char* kRankMemory = "rank_memory_bytes";
inline constexpr const char* kLoss = "loss";  ///< of the last step

/// A point of the grid.
struct Point {
  std::string way = "serial";  ///< serial, ddp, fsdp, pp
  int places = 1;              ///< ranks
  int length = 256;            ///< tokens of a sequence
  std::string model = "gpt2-nano";
  int batch = 8;  ///< sequences a step, on all places together
  int steps = 9;  ///< of which the first is not timed

  int batch_a_rank() const { return way == "pp" ? batch : batch / places; }
};

/// Makes the study: each way at each length of sequences. In full GPT-2 on four places, else
/// nanoGPT's small net on as many places as there are cores, two at least and four at most.
Study make_study(const StudyOptions& options);

/// Draws a text into the bench's folder, unless data are named; keeps one that is there.
void prepare(const StudyOptions& options, const std::filesystem::path& output);

/// Reads a run's metrics.jsonl and summary.json.
SampleValues values_of(const Point& point, const std::filesystem::path& run);

}  // namespace lockstep::bench::language_model
