// Offers a task under a name that is taken.

#include "lockstep/nn/models/plugin.h"

LOCKSTEP_TASK("tokens", [](const lockstep::nn::TaskNet&, const lockstep::nn::TaskBatch&) {
  return lockstep::nn::TaskResult();
})
