#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::bench {

/// Is the work of the study, whose run time it published.
inline constexpr int kStudyEpochs = 10;
inline constexpr int kStudyBatch = 128;  ///< images a step on each place
inline constexpr int kStudyPixels = 224;
inline constexpr int kStudyImages = 50000;  ///< CIFAR-100's training set

/// Says with what the times were measured.
inline constexpr const char* kScalingPublishedWith =
    "Python PyTorch's DDP on NVIDIA TITAN RTX GPUs, two on each node; an evaluation and a "
    "checkpoint after each epoch are in those times";

/// Gives the published seconds of ten epochs; nothing where the study has no such cell.
std::optional<double> published_run_seconds(int nodes, int places, const std::string& started_by);

/// Is how many bytes the gradients of ResNet18 with 100 classes are, in float32.
inline constexpr std::int64_t kGradientBytes = 4 * std::int64_t{11'227'812};

/// Counts the steps of the study's ten epochs on so many places.
std::int64_t study_steps(int places);

/// Gives the seconds that the gradients of all steps take over a node's link if nothing hides them:
/// in a ring each link carries 2 (n - 1) / n times the gradients of n places, each step.
double seconds_on_link(int places, double bits_per_second);

}  // namespace lockstep::bench
