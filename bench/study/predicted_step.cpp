#include "bench/study/predicted_step.h"

#include "lockstep/plan/prediction.h"

namespace lockstep::bench {

double predicted_step(const plan::WholeStep& alone, const plan::Machine& machine,
    const plan::Way& way, double batch) {
  return predict(coarse_profile(alone), machine, way, batch).seconds;
}

double predicted_on_nodes(
    const plan::WholeStep& alone, int nodes, double batch, double bits_per_second) {
  constexpr double kBits = 8;  // of a byte
  const plan::Machine machine{
      .nodes = nodes, .between = {.bytes_per_second = bits_per_second / kBits}};
  return predicted_step(alone, machine, {.replicas = nodes}, batch);
}

}  // namespace lockstep::bench
