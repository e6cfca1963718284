#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace lockstep {

/// The root of every exception that Lockstep throws; failures of the operating system are
/// std::system_error.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed something that cannot work: a flag, an option, a shape, a rank. Exit code 2.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A file does not hold what it should; the message names file, offset and reason. Exit code 3.
class DataError : public Error {
 public:
  using Error::Error;
};

/// A peer failed or left, and the group can no longer be used. Exit code 5.
class CommError : public Error {
 public:
  using Error::Error;
};

/// A peer did not come in time; the message names the ranks and the collective.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

/// Training produced NaN or Inf beyond what the policy allows. Exit code 6.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// A device or the host has not the memory that training takes. Exit code 4.
class MemoryError : public Error {
 public:
  using Error::Error;
};

/// Joins text and values into one message.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws InvalidArgument with the joined parts unless the condition holds.
///
///     check(root < size(), "broadcast: root must be a rank of the group: ", root, " of ", size());
template <typename... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) throw InvalidArgument(concat(parts...));
}

}  // namespace lockstep
