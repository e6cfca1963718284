// Trains ResNet50 cut in two, each half in its own place, and lets both compute at once: each
// batch is split into micro-batches. Prints the time of a step for each split size. Small
// micro-batches keep both places busy, large ones make better use of a place.
//
//     ./pipeline --batch-size 120 --image-size 128 --split-size 1,3,5,8,10,12,20,40,60 --repeats 10

#include <cmath>
#include <cstdio>
#include <lockstep/lockstep.h>

#include "flags.h"
#include "two_places.h"
#include <torch/torch.h>

namespace {

struct Statistics {
  double mean = 0;
  double deviation = 0;
};

// The first step is a warm-up and not counted.
Statistics time_steps(lockstep::Pipeline& model, const Flags& flags) {
  torch::optim::SGD optimizer(model.parameters(), 0.001);
  const auto size = flags.number("image-size");
  const auto images = torch::randn({flags.number("batch-size"), 3, size, size});
  const auto labels = torch::randint(1000, {flags.number("batch-size")}, torch::kLong);
  const auto repeats = flags.number("repeats");
  std::vector<double> seconds;
  for (int step = 0; step <= repeats; ++step) {
    const lockstep::Stopwatch watch;
    optimizer.zero_grad();
    model.step(images, labels, [](const torch::Tensor& scores, const torch::Tensor& classes) {
      return torch::cross_entropy_loss(scores, classes);
    });
    optimizer.step();
    if (step > 0) seconds.push_back(watch.seconds());
  }
  Statistics statistics;
  for (const double value : seconds) statistics.mean += value / static_cast<double>(repeats);
  for (const double value : seconds) statistics.deviation += std::pow(value - statistics.mean, 2);
  statistics.deviation = std::sqrt(statistics.deviation / static_cast<double>(repeats));
  return statistics;
}

}  // namespace

int train(int argc, char** argv) {
  const Flags flags(argc, argv,
      {{"batch-size", "12"}, {"image-size", "64"}, {"split-size", "1,2,3,4,6,12"},
          {"schedule", "1f1b"}, {"repeats", "3"}});
  const auto places = two_places();
  torch::manual_seed(0);
  auto net = lockstep::nn::make_model("resnet50", 1000);
  const int layers = static_cast<int>(net->layers().size());
  const int first = static_cast<int>(lockstep::nn::layer_index(net->layers(), "layer3"));
  const auto batch = flags.number("batch-size");
  for (const auto split : flags.numbers("split-size")) {
    const int chunks = static_cast<int>((batch + split - 1) / split);
    const auto schedule = lockstep::schedule_kind(flags.text("schedule"));
    lockstep::Pipeline model(net->layers(), {first, layers - first}, places,
        lockstep::PipelineOptions().chunks(chunks).schedule(schedule));
    const auto [mean, deviation] = time_steps(model, flags);
    std::printf("split size %3d, %3d micro-batches: mean %.3f s, standard deviation %.3f s\n",
        static_cast<int>(split), chunks, mean, deviation);
    std::fflush(stdout);
  }
  return 0;
}

int main(int argc, char** argv) { return lockstep::run_program("pipeline", train, argc, argv); }
