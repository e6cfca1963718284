// Offers a net under a name that is taken.

#include <torch/nn/modules/linear.h>

#include "lockstep/nn/models/plugin.h"

LOCKSTEP_MODEL("toy", [](std::int64_t classes) { return torch::nn::Linear(10, classes); })
