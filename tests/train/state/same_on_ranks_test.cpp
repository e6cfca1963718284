#include "lockstep/train/state/same_on_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SameOnRanks, EqualValuesPass) {
  run_ranks(3, [](const ProcessGroup& world) {
    EXPECT_NO_THROW(check_same_on_ranks({{"a", "1"}}, "test:", world));
    TrainOptions options;
    options.output = concat("runs/", world.rank());
    EXPECT_NO_THROW(check_same_flags(options, world));
  });
}

TEST(SameOnRanks, ADifferenceIsNamedOnAllRanksWithValuesAndRanks) {
  run_ranks(4, [](const ProcessGroup& world) {
    TrainOptions options;
    if (world.rank() == 2) options.optimizer.lr = 0.5;
    if (world.rank() > 1) options.smoothing = 0.1;
    if (world.rank() == 1) options.optimizer.clip_grad = 1;
    EXPECT_EQ(testing::message_of<InvalidArgument>([&] { check_same_flags(options, world); }),
        "train: the ranks were started with different flags; give all of them the same:\n"
        "  --smoothing: 0.0 on ranks 0, 1, 0.1 on ranks 2, 3\n"
        "  --lr: 0.001 on ranks 0, 1, 3, 0.5 on rank 2\n"
        "  --clip-grad: no value on ranks 0, 2, 3, 1.0 on rank 1");
  });
}

TEST(SameOnRanks, ManyDifferencesStayShort) {
  run_ranks(6, [](const ProcessGroup& world) {
    Configuration values;
    for (const char* name : {"a", "b", "c", "d", "e"})
      values.emplace_back(name, world.rank() == 0 ? "x" : "y");
    EXPECT_THAT(
        testing::message_of<InvalidArgument>([&] { check_same_on_ranks(values, "test:", world); }),
        AllOf(HasSubstr("test:\n  a: x on rank 0, y on ranks 1, 2, 3, 4 and 1 more\n"),
            Not(HasSubstr("d: ")), HasSubstr("; these differ, too: d, e")));
  });
}

}  // namespace
}  // namespace lockstep
