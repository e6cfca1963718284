#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

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

/// Returns the message of the Exception that the call throws; empty without one.
template <typename Exception, typename Call>
std::string complaint_of(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

/// Expects that a text has each of these parts.
inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in: " << text;
}

}  // namespace lockstep::testing
