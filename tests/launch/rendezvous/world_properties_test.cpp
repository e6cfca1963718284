#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/launch/rendezvous/play.h"

namespace lockstep::launch {
namespace {

RC_GTEST_PROP(AnyWorld, KeepsItsRulesWhateverHappens, ()) {
  play([](int count) { return *rc::gen::inRange(0, count); });
}

}  // namespace
}  // namespace lockstep::launch
