#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench::scale_out {

/// Says what every number of nodes trains, and for how long: the study's own, or what two cores can
/// do in two minutes.
struct TrainerPlan {
  std::string model;
  std::string set;       ///< whose images it takes: `images`, `mnist`
  int image_size = 224;  ///< pixels on each side
  int batch = 32;        ///< images a step on each node
  int budget_seconds = 7200;
  std::string budget;             ///< the same as --max-time takes it
  std::string rate;               ///< of the network, as tc takes it: a number and `gbit`
  std::int64_t train_images = 0;  ///< to draw, those for validation among them
  std::int64_t test_images = 0;   ///< to draw
  std::string val_split;          ///< share of the training images to validate on
  std::string snapshot_interval;  ///< where a worker is killed
  int kill_seconds = 0;           ///< after the start: half of the budget, and the start itself
  double gigabytes_a_host = 0;    ///< of memory that training takes on each
  int log_interval = 1;           ///< steps between points of the training loss
  int most_nodes = 8;             ///< that are measured
  int rounds = 1;
  double limit_seconds = 0;  ///< of a sample
};

inline constexpr int kNumbersOfNodes[] = {1, 2, 4, 8};
inline constexpr int kKilledNodes = 2;    ///< of the run in which a worker is killed
inline constexpr int kDrawnClasses = 20;  ///< of `images`, as in the study

/// Gives the plan of the whole study or of the quick part.
const TrainerPlan& trainer_plan(bool full);

}  // namespace lockstep::bench::scale_out
