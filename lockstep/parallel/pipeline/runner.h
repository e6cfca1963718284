#pragma once

#include <map>
#include <vector>

#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/parallel/pipeline/stage.h"
#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {

/// One rank's part of a schedule, carried out with its stages.
class Runner {
 public:
  /// Takes the rank's stages; `stages` is how many the pipeline has, stage s being on rank
  /// s % ranks.
  Runner(std::vector<Stage> own, int stages, int ranks, Links& links);

  void begin_step(const StepPlan& plan);

  /// Carries out actions in order; transfers follow from the others.
  void run(const std::vector<Action>& actions);

  /// Puts in the first stage's input, or the gradient of the last one's output.
  void put(const Address& address, Payload payload);

  /// Takes out the last stage's output, or the gradient of the first one's input.
  Payload take(const Address& address);

  void end_step();

  const std::vector<Stage>& stages() const { return own_; }

 private:
  void run(const Action& action);
  void forward(Stage& stage, const Action& action);
  void backward(Stage& stage, const Action& action);
  Payload arriving(const Address& address);
  void hand_on(const Address& address, Payload payload);
  Stage& stage(int index);
  bool is_own(int stage) const;
  bool has_loss() const { return plan_.loss != nullptr; }

  std::vector<Stage> own_;
  int stages_;
  int ranks_;
  Links& links_;
  StepPlan plan_;
  std::map<Address, Payload> here_;
};

}  // namespace lockstep
