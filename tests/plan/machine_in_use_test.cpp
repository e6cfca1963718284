// What sockets and shared cores make of a machine's links.

#include <gtest/gtest.h>

#include "tests/plan/profiles.h"

#include "lockstep/plan/prediction.h"

namespace lockstep::plan {
namespace {

using testing::free_machine;
using testing::uniform;

TEST(MachineInUse, OfNodesWithinOneMachineIsThatOfItsPlaces) {
  ModelProfile profile = uniform(2);
  profile.company.compute = {1, 1.5};
  Machine machine = free_machine(2, 1);
  const double apart = predict(profile, machine, {.replicas = 2}, 8).seconds;
  machine.is_one_machine = true;
  EXPECT_NEAR(predict(profile, machine, {.replicas = 2}, 8).seconds, 1.5 * apart, 1e-9);
}

TEST(MachineInUse, OfSocketsIsBoundByTheCoreThatMovesTheBytes) {
  ModelProfile profile = uniform(2, 1e6);
  const Machine machine = free_machine(2, 1, 1e9);
  const double free = predict(profile, machine, {.replicas = 2}, 8).seconds;
  profile.overheads.socket_core = 1e-6;
  const Prediction bound = predict(profile, machine, {.replicas = 2}, 8);
  // Two ranks send 2e6 bytes of gradients, a second each megabyte, and compute nothing meanwhile.
  EXPECT_NEAR(bound.seconds, free - 2e6 / 1e9 + 2, 0.01);
  EXPECT_NEAR(bound.of(Use::kCommunication), 2, 0.01);
}

TEST(MachineInUse, OfAMeasuredLinkHasTheSocketsInIt) {
  ModelProfile profile = uniform(2, 1e6);
  profile.overheads.socket_core = 1e-6;
  Machine machine = free_machine(2, 1);
  machine.between.measured = CostCurve({{1, 1e-6}, {1e6, 1}, {2e6, 2}});
  machine.between.core_share = 1;
  const double alone = predict(uniform(2, 1e6), free_machine(2, 1), {.replicas = 2}, 8).seconds;
  // Each of two buckets of a megabyte is two messages of a half, and hides nothing.
  EXPECT_NEAR(predict(profile, machine, {.replicas = 2}, 8).seconds, alone + 2 * 2 * 0.5, 1e-3);
}

TEST(MachineInUse, OfALinkMeasuredAloneIsBoundByACoreThatAlsoComputes) {
  ModelProfile profile = uniform(2, 1e6);
  profile.overheads.socket_core = 1e-6;
  Machine machine = free_machine(2, 1);
  machine.between.measured = CostCurve({{1, 1e-7}, {1e6, 0.1}, {2e6, 0.2}});
  const double alone = predict(uniform(2, 1e6), free_machine(2, 1), {.replicas = 2}, 8).seconds;
  const Prediction bound = predict(profile, machine, {.replicas = 2}, 8);
  EXPECT_NEAR(bound.seconds, alone + 2, 1e-3);
  EXPECT_NEAR(bound.of(Use::kCommunication), 2, 1e-3) << "the core's own";
}

TEST(MachineInUse, OfNodesOnOneCoreAddsUpTheirBytesInTurns) {
  ModelProfile profile = uniform(2, 1e6);
  Machine machine = free_machine(2, 2);
  machine.within = {.bytes_per_second = 1e6, .core_share = 1};
  machine.is_one_machine = true;
  const Way way{.replicas = 4};
  const auto communication = [&] {
    return predict(profile, machine, way, 8).of(Use::kCommunication);
  };
  const double apart = communication();
  EXPECT_NEAR(apart, 2, 0.1) << "2e6 bytes are added up and spread";
  profile.company.cores = 2;
  EXPECT_NEAR(communication(), 2 * apart, 1e-6);
}

TEST(MachineInUse, OfNodesOnOneCoreMovesTheirBytesInTurns) {
  ModelProfile profile = uniform(2, 1e6);
  Machine machine = free_machine(4, 1);
  machine.between = {.bytes_per_second = 1e6, .core_share = 0.75};
  machine.is_one_machine = true;
  const auto communication = [&] {
    return predict(profile, machine, {.replicas = 4}, 8).of(Use::kCommunication);
  };
  const double apart = communication();
  EXPECT_NEAR(apart, 0.75 * 3, 0.01) << "2e6 bytes are passed on one and a half times";
  profile.company.cores = 2;
  EXPECT_NEAR(communication(), 2 * apart, 1e-6);
}

TEST(MachineInUse, OfNodesOnOneCoreIsLessSurelyKnown) {
  ModelProfile profile = uniform(2);
  profile.company.cores = 2;
  Machine machine = free_machine(2, 2);
  const double apart = predict(profile, machine, {.replicas = 4}, 8).spread;
  machine.is_one_machine = true;
  EXPECT_GT(predict(profile, machine, {.replicas = 4}, 8).spread, apart) << "four on two cores";
}

}  // namespace
}  // namespace lockstep::plan
