// A serial program with two nets: a generator learns to draw points of a ring, and a critic to tell
// its points from true ones.

#include <cstdio>
#include <lockstep/lockstep.h>

#include <torch/torch.h>

using namespace torch;

Tensor ring(int64_t points) {
  const Tensor angle = 6.2831853 * torch::rand({points, 1});
  return torch::cat({angle.cos(), angle.sin()}, 1) + 0.05 * torch::randn({points, 2});
}

int main() {
  torch::manual_seed(1);
  nn::Sequential generator(nn::Linear(4, 32), nn::ReLU(), nn::Linear(32, 2));
  nn::Sequential critic(nn::Flatten(), nn::Linear(2, 32), nn::ReLU(), nn::Linear(32, 32),
      nn::ReLU(), nn::Linear(32, 1), nn::Sigmoid());
  optim::Adam of_generator(generator->parameters(), 1e-3);
  optim::Adam of_critic(critic->parameters(), 1e-3);
  const Tensor ones = torch::ones({64, 1});
  for (int step = 0; step < 5000; ++step) {
    const Tensor drawn = generator->forward(torch::randn({64, 4}));
    of_critic.zero_grad();
    const Tensor loss = torch::binary_cross_entropy(critic->forward(ring(64)), ones) +
                        torch::binary_cross_entropy(critic->forward(drawn.detach()), 0 * ones);
    loss.backward();
    of_critic.step();
    of_generator.zero_grad();
    torch::binary_cross_entropy(critic->forward(drawn), ones).backward();
    of_generator.step();
    if (step % 100 == 0)
      std::printf("step %d, loss of the critic %.4f\n", step, loss.item<double>());
  }
}

struct GanImpl : nn::Module {
  nn::Sequential generator = register_module(
      "generator", nn::Sequential(nn::Linear(4, 32), nn::ReLU(), nn::Linear(32, 2)));
  nn::Sequential critic =
      register_module("critic", nn::Sequential(nn::Linear(2, 32), nn::ReLU(), nn::Linear(32, 32),
                                    nn::ReLU(), nn::Linear(32, 1), nn::Sigmoid()));
  Tensor forward(const Tensor& noise) { return generator->forward(noise); }
  Tensor loss(const Tensor& points, double truth) {
    const Tensor taken_for = critic->forward(points.flatten(1));
    return torch::binary_cross_entropy(taken_for, torch::full_like(taken_for, truth));
  }
};

LOCKSTEP_MODEL("gan", [](int64_t) { return std::make_shared<GanImpl>(); })
LOCKSTEP_TASK("gan",
    lockstep::nn::turn("critic",
        [](GanImpl& gan, const lockstep::nn::TaskBatch& batch) {
          const Tensor drawn = gan.forward(torch::randn({batch.input().size(0), 4}));
          return lockstep::nn::TaskResult{gan.loss(batch.input(), 1) + gan.loss(drawn, 0)};
        }),
    lockstep::nn::turn("generator", [](GanImpl& gan, const lockstep::nn::TaskBatch& batch) {
      const Tensor drawn = gan.forward(torch::randn({batch.input().size(0), 4}));
      return lockstep::nn::TaskResult{gan.loss(drawn, 1), {{"radius", drawn.norm(2, 1).mean()}}};
    }))
LOCKSTEP_DATA("ring", [](const std::string&) {
  torch::manual_seed(1);  // all ranks draw the same points
  const auto set =
      lockstep::nn::set_of(ring(1024).view({1024, 1, 1, 2}), torch::zeros(1024).to(torch::kLong));
  return lockstep::nn::PluginParts{.train = set, .test = set};
})
