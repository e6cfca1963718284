#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

/// The place in LibTorch's dispatcher where our rules for operators stand: above autograd, so a
/// rule sees the calls of unmodified modules and may compute them by differentiable operators.
///
/// Note [Operator rules]
/// C++ modules hold their layers by type; a layer inside a user's block cannot be replaced, as
/// Python does for SyncBatchNorm or torchgpipe for its deferred batch norm. What can be replaced is
/// the operator that the layer calls. A rule is installed for a thread and a scope; while none is,
/// LibTorch runs as if this file did not exist, and the operators without a rule never notice.
inline constexpr c10::DispatchKey kOperatorRules = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Lets the rules of this thread be asked while it lives.
class [[nodiscard]] OperatorRulesOn {
 public:
  OperatorRulesOn();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

/// Hides the rules while it lives: for a rule that calls the operator itself.
class [[nodiscard]] OperatorRulesOff {
 public:
  OperatorRulesOff() : guard_(kOperatorRules) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace lockstep
