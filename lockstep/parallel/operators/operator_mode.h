#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

/// The place in LibTorch's dispatcher where our rules for operators stand: above autograd, so a
/// rule sees the calls of unmodified modules and may compute them by differentiable operators.
///
/// Note [Operator rules]
/// C++ modules hold their layers by type; a layer inside a user's block cannot be replaced, as
/// Python does for SyncBatchNorm and torchgpipe for its deferred batch norm. What can be replaced
/// is the operator that the layer calls. A rule is installed for a thread and a scope; without one,
/// LibTorch runs as if this file did not exist, and operators without a rule are not affected.
inline constexpr c10::DispatchKey kOperatorRules = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Turns the rules of this thread on while it exists.
class [[nodiscard]] OperatorRulesOn {
 public:
  OperatorRulesOn();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

/// Hides the rules while it exists: for a rule that calls the operator itself.
class [[nodiscard]] OperatorRulesOff {
 public:
  OperatorRulesOff() : guard_(kOperatorRules) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace lockstep
