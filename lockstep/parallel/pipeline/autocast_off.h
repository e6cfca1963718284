#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

/// A scope without autocast, for backward: it repeats the types of its forward by itself.
class AutocastOff {
 public:
  AutocastOff() : guard_(c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace lockstep
