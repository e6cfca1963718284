#include "lockstep/record/confusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Mistake = Confusion::Mistake;

Confusion three_classes() {
  Confusion confusion(3);
  confusion.add(0, 0, 5);
  confusion.add(0, 1);
  confusion.add(1, 0, 2);
  confusion.add(0, 1);
  return confusion;
}

TEST(Confusion, CountsByClassAndByWhatItWasTakenFor) {
  const Confusion confusion = three_classes();
  EXPECT_EQ(confusion.classes(), 3);
  EXPECT_EQ(confusion.count(0, 0), 5);
  EXPECT_EQ(confusion.count(0, 1), 2);
  EXPECT_EQ(confusion.count(1, 0), 2);
  EXPECT_EQ(confusion.count(1, 1), 0);
  EXPECT_EQ(confusion.of_class()[0].samples, 7);
  EXPECT_EQ(confusion.of_class()[0].right, 5);
  EXPECT_EQ(confusion.of_class()[0].accuracy(), 5.0 / 7);
  EXPECT_EQ(confusion.of_class()[1].accuracy(), 0);
  EXPECT_FALSE(confusion.of_class()[2].accuracy()) << "it has no samples";
}

TEST(Confusion, TheMostFrequentMistakesComeFirstAndEqualOnesByClass) {
  Confusion confusion = three_classes();
  confusion.add(2, 1, 3);
  EXPECT_THAT(
      confusion.mistakes(9), ElementsAre(Mistake{2, 1, 3}, Mistake{0, 1, 2}, Mistake{1, 0, 2}));
  EXPECT_THAT(confusion.mistakes(1), ElementsAre(Mistake{2, 1, 3}));
  EXPECT_THAT(Confusion(3).mistakes(1), IsEmpty());
}

TEST(Confusion, AClassThatIsNoneIsRefused) {
  Confusion confusion(3);
  for (const std::int64_t other : {-1, 3}) {
    EXPECT_THROW(confusion.add(other, 0), InvalidArgument);
    EXPECT_THROW(confusion.add(0, other), InvalidArgument);
  }
  EXPECT_THAT(confusion.counts(), IsEmpty());
}

}  // namespace
}  // namespace lockstep
