#pragma once

#include <gtest/gtest.h>
#include <string>

namespace lockstep::testing {

/// Returns the message of the Exception that the call throws; without one, the test fails.
///
///     EXPECT_EQ(message_of<DataError>([&] { read(file); }), "...");
template <typename Exception, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lockstep::testing
