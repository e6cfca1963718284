#pragma once

#include <string>

namespace lockstep::net {

/// The variable with the secret that the nodes of a run share.
inline constexpr const char* kSecretVariable = "LOCKSTEP_SECRET";

/// Returns the secret: what the file holds, without an end of line; without a file the value of
/// LOCKSTEP_SECRET; without that nothing.
///
/// Throws InvalidArgument for a file that others may read or that is not ours or root's, and for a
/// secret of less than 16 bytes; std::system_error for one that cannot be read.
std::string shared_secret(const std::string& file);

}  // namespace lockstep::net
