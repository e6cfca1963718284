#pragma once

#include <span>

namespace lockstep::bench::scale_out {

/// Is what the study published of training for two hours on so many nodes.
struct PublishedNodes {
  int nodes = 1;  ///< with one GPU each
  double learning_rate = 0;
  int global_batch = 0;
  int steps_an_epoch = 0;
  double epoch_minutes = 0;  ///< mean
  int epochs = 0;            ///< within the two hours
  double efficiency = 0;
  double best_val_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;
};

/// Says with what it was measured.
inline constexpr const char* kPublishedWith =
    "Python PyTorch's DDP, VGG19 that began with pretrained weights, 20 classes of ImageNet, 2 "
    "hours, AWS g4dn.2xlarge nodes with one NVIDIA T4 each";

/// Is what the formula of prediction needs of the study besides: the parameters of VGG19 with 20
/// classes, float32, and the network of its nodes.
inline constexpr double kPublishedBytes = 139652180.0 * 4;
inline constexpr double kPublishedBitsPerSecond = 25e9;

/// Lists what was published, by nodes.
std::span<const PublishedNodes> published_nodes();

/// Finds a number of nodes; nullptr where nothing was published.
const PublishedNodes* find_published_nodes(int nodes);

}  // namespace lockstep::bench::scale_out
