#include "lockstep/core/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(Environment, AbsentAndEmptyAreTheSame) {
  unsetenv("LOCKSTEP_TEST_VALUE");
  EXPECT_FALSE(environment("LOCKSTEP_TEST_VALUE"));
  setenv("LOCKSTEP_TEST_VALUE", "", 1);
  EXPECT_FALSE(environment("LOCKSTEP_TEST_VALUE"));
}

TEST(Environment, NumberRefusesWhatIsNotOne) {
  setenv("LOCKSTEP_TEST_VALUE", "12", 1);
  EXPECT_EQ(environment_number("LOCKSTEP_TEST_VALUE"), 12);
  for (const char* bad : {"12a", "x", "1.5", "99999999999999999999"}) {
    setenv("LOCKSTEP_TEST_VALUE", bad, 1);
    EXPECT_THROW(environment_number("LOCKSTEP_TEST_VALUE"), InvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace lockstep
