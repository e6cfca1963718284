#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Refuses every address but https without a password, as InvalidArgument; http to this host's
/// loopback is taken if that is allowed.
void check_download_address(const std::string& address, bool plain_on_loopback);

/// Says that an HTTP status tells of a state of the server that may be gone a little later.
bool status_may_pass(long status);

/// Reads where a part begins out of the header's value `bytes 100-199/200` (RFC 9110, 14.4).
std::optional<std::uint64_t> first_byte_of(const std::string& content_range);

/// Says that an entity tag vouches for every byte (RFC 9110, 8.8.3); only such a one may resume.
bool is_strong_tag(const std::string& tag);

}  // namespace lockstep
