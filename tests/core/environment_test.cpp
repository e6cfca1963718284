#include "lockstep/core/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::message_of;

TEST(Environment, AnEmptyVariableIsAMistakeThatIsNamed) {
  unsetenv("LOCKSTEP_TEST_VALUE");
  EXPECT_FALSE(environment("LOCKSTEP_TEST_VALUE"));
  EXPECT_FALSE(environment_number("LOCKSTEP_TEST_VALUE"));
  setenv("LOCKSTEP_TEST_VALUE", "", 1);
  const std::string message =
      "environment: LOCKSTEP_TEST_VALUE is set, but empty; give it a value, or unset it";
  EXPECT_EQ(message_of<InvalidArgument>([] { environment("LOCKSTEP_TEST_VALUE"); }), message);
  EXPECT_EQ(
      message_of<InvalidArgument>([] { environment_number("LOCKSTEP_TEST_VALUE"); }), message);
  EXPECT_EQ(message_of<InvalidArgument>([] { environment_count("LOCKSTEP_TEST_VALUE"); }), message);
}

TEST(Environment, AVariableOfTheSystemMayBeEmpty) {
  unsetenv("LOCKSTEP_TEST_VALUE");
  EXPECT_EQ(system_variable("LOCKSTEP_TEST_VALUE"), "");
  setenv("LOCKSTEP_TEST_VALUE", "", 1);
  EXPECT_EQ(system_variable("LOCKSTEP_TEST_VALUE"), "");
  setenv("LOCKSTEP_TEST_VALUE", "/bin", 1);
  EXPECT_EQ(system_variable("LOCKSTEP_TEST_VALUE"), "/bin");
}

TEST(Environment, ACountIsNeverCutToFit) {
  for (const char* bad : {"-1", "1000001", "4294967296", "1099511627776", "nan", "1e3"}) {
    setenv("LOCKSTEP_TEST_VALUE", bad, 1);
    EXPECT_EQ(message_of<InvalidArgument>([] { environment_count("LOCKSTEP_TEST_VALUE"); }),
        concat("environment: LOCKSTEP_TEST_VALUE must be a whole number from 0 to 1000000: ", '"',
            bad, '"'));
  }
  setenv("LOCKSTEP_TEST_VALUE", "0", 1);
  EXPECT_EQ(environment_count("LOCKSTEP_TEST_VALUE"), 0);
  EXPECT_THROW(environment_count("LOCKSTEP_TEST_VALUE", 1), InvalidArgument);
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
