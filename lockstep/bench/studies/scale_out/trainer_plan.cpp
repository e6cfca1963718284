#include "lockstep/bench/studies/scale_out/trainer_plan.h"

namespace lockstep::bench::scale_out {
namespace {

// 1,040 of the 1,156 images of a class are trained on: 650 batches of 32, as the study has them.
TrainerPlan full_plan() {
  return {
      .model = "vgg19",
      .image_size = 224,
      .batch = 32,
      .budget_seconds = 2 * 60 * 60,
      .budget = "2h",
      .rate = "25gbit",
      .train_images = 1156 * kDrawnClasses,
      .test_images = 130 * kDrawnClasses,
      .drawn_side = 0,
      .val_split = "0.1",
      .snapshot_interval = "10m",
      .kill_seconds = 60 * 60,
      .gigabytes_a_host = 8,
      .log_interval = 10,
      .most_nodes = 8,
      .rounds = 1,  // as the study: with five cells of two hours it is a night
      .limit_seconds = 6.0 * 60 * 60};
}

// VGG19's classifier alone is half a gigabyte on each host; this net has a twelfth of its
// parameters, and at 1 Gbit/s a batch takes about as long to compute as its gradients to send.
TrainerPlan quick_plan() {
  return {
      .model = "resnet18-cifar",
      .image_size = 16,
      .batch = 32,
      .budget_seconds = 10,
      .budget = "10s",
      .rate = "1gbit",
      .train_images = 10 * kDrawnClasses,
      .test_images = 2 * kDrawnClasses,
      .drawn_side = 32,
      .val_split = "0.2",
      .snapshot_interval = "2s",
      .kill_seconds = 8,
      .gigabytes_a_host = 0.5,
      .log_interval = 1,
      .most_nodes = 4,
      .rounds = 2,
      .limit_seconds = 120};
}

}  // namespace

const TrainerPlan& trainer_plan(bool full) {
  static const TrainerPlan kFull = full_plan(), kQuick = quick_plan();
  return full ? kFull : kQuick;
}

}  // namespace lockstep::bench::scale_out
