#include <lockstep/lockstep.h>

#include <torch/types.h>

int main() {
  // Each rank adds its number plus one: 1 + 2.
  lockstep::run_ranks(2, [](const lockstep::ProcessGroup& world) {
    const torch::Tensor sum = torch::full({3}, world.rank() + 1.0);
    world.all_reduce(sum).wait();
    lockstep::check(sum.allclose(torch::full({3}, 3.0)), "the sum of two ranks is wrong");
  });
}
