#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// What a second place and a second node give to DDP: ResNet18 on CIFAR-100, ten epochs, on one
/// place, two of one node by two launchers, and two nodes.
namespace lockstep::bench::ddp_scaling {

inline constexpr int kStudyBatch = 128;  ///< images a step on each place

/// What starts torchrun on each of several nodes.
inline constexpr const char* kHostsTorchrun = "hosts-torchrun";

/// Makes the study: its four cells, four places on two nodes also by `lockstep run` and, to tell
/// the network's share from that of the number of places, two places on two nodes.
Study make_study(const StudyOptions& options);

/// Draws a set in CIFAR-100's form into the bench's folder, unless one was named: then it throws
/// DataError or InvalidArgument when that is not there.
void prepare(const StudyOptions& options, const std::filesystem::path& output);

/// Reads the values of a run of two epochs or more from its summary.json and metrics.jsonl.
///
/// Ten whole epochs are the first, which includes starting, and nine like the mean of the others.
/// Where the run's epochs were shorter than CIFAR-100's, they are extrapolated by their rate,
/// and so is an evaluation of fewer images than CIFAR-100's test set has; `trained_seconds` and
/// `between_seconds` are what the run really took. A checkpoint takes what lies between two
/// evaluations and is not the epoch. Another summary is a DataError.
SampleValues values_of(const std::filesystem::path& run);

/// Returns the published seconds of ten epochs; nothing where the study has no such cell.
std::optional<double> published_seconds(int nodes, int places, const std::string& started_by);

/// Returns the steps of the study's ten epochs on this many places.
std::int64_t study_steps(int places);

/// Returns the seconds that the gradients of all steps take over a node's link if nothing hides
/// them: in a ring each link carries 2 (n - 1) / n times the gradients of n places, each step.
double seconds_on_link(int places, double bits_per_second);

}  // namespace lockstep::bench::ddp_scaling
