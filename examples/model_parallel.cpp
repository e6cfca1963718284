// Trains ResNet50 cut in two, conv1 .. layer2 | layer3 .. fc, each half in its own place, then the
// whole in one place, and compares them. Model parallel makes room for a model that is too
// large for one place; it is not faster: while one half computes, the other waits.
//
//     ./model_parallel --batch-size 120 --image-size 128 --steps 5

#include <cstdio>
#include <lockstep/lockstep.h>

#include "flags.h"
#include "two_places.h"
#include <torch/torch.h>

namespace {

struct Result {
  double seconds = 0;  // of the fastest step
  double loss = 0;     // of the last one
};

Result train(lockstep::nn::Model& net, const std::vector<int>& balance,
    const std::vector<lockstep::Place>& places, const Flags& flags) {
  lockstep::Pipeline model(net->layers(), balance, places,
      lockstep::PipelineOptions().chunks(1).schedule(lockstep::ScheduleKind::kSequential));
  torch::optim::SGD optimizer(model.parameters(), 0.001);
  torch::manual_seed(1);
  const auto size = flags.number("image-size");
  const auto images = torch::randn({flags.number("batch-size"), 3, size, size});
  const auto labels = torch::randint(1000, {flags.number("batch-size")}, torch::kLong);
  Result result{1e9, 0};
  for (int step = 0; step < flags.number("steps"); ++step) {
    const lockstep::Stopwatch watch;
    optimizer.zero_grad();
    result.loss = model
                      .step(images, labels,
                          [](const torch::Tensor& scores, const torch::Tensor& classes) {
                            return torch::cross_entropy_loss(scores, classes);
                          })
                      .item<double>();
    optimizer.step();
    result.seconds = std::min(result.seconds, watch.seconds());
  }
  return result;
}

}  // namespace

int compare(int argc, char** argv) {
  const Flags flags(argc, argv, {{"batch-size", "8"}, {"image-size", "64"}, {"steps", "3"}});
  const auto places = two_places();
  torch::manual_seed(0);
  auto net = lockstep::nn::make_model("resnet50", 1000);
  lockstep::nn::Model same(std::dynamic_pointer_cast<lockstep::nn::ModelImpl>(net->clone()));

  const int layers = static_cast<int>(net->layers().size());
  const int first = static_cast<int>(lockstep::nn::layer_index(net->layers(), "layer3"));
  const Result one = train(same, {layers}, {places.front()}, flags);
  const Result two = train(net, {first, layers - first}, places, flags);
  std::printf("one place:  %.3f s a step, last loss %.6f\n", one.seconds, one.loss);
  std::printf("two places: %.3f s a step, last loss %.6f\n", two.seconds, two.loss);
  std::printf("time %+.1f %%, losses differ by %.1e\n", 100 * (two.seconds / one.seconds - 1),
      std::abs(two.loss - one.loss) / one.loss);
  return 0;
}

int main(int argc, char** argv) {
  return lockstep::run_program("model_parallel", compare, argc, argv);
}
