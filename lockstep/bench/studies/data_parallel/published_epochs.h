#pragma once

#include <optional>
#include <span>
#include <string>

namespace lockstep::bench {

/// Is what the study published of one point of its grid.
struct PublishedEpochs {
  std::string model;  ///< `mnist-small` or `mnist-large`
  int repeat = 1;
  int batch = 128;  ///< images a step on each GPU
  int places = 1;   ///< GPUs
  double first_seconds = 0;
  std::optional<double> second_seconds = {};
};

/// Says with what they were measured.
inline constexpr const char* kPublishedWith =
    "Python PyTorch's DataParallel on NVIDIA Tesla K80s, 2 virtual CPUs, MNIST";

/// Lists what was published.
std::span<const PublishedEpochs> published_epochs();

/// Finds a point; nullptr where nothing was published.
const PublishedEpochs* find_published(const std::string& model, int repeat, int batch, int places);

}  // namespace lockstep::bench
