#include "lockstep/parallel/operators/operator_mode.h"

#include <torch/library.h>

namespace lockstep {

// An operator without a rule goes on to what LibTorch does.
TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

// Not inline, so that a program with rules links this file and its registration above.
OperatorRulesOn::OperatorRulesOn() : guard_(kOperatorRules) {}

}  // namespace lockstep
