#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::net {

/// A SHA-256 as bytes: a digest, a key or a nonce.
inline constexpr std::size_t kKeyBytes = 32;
using Key = std::array<std::uint8_t, kKeyBytes>;

/// Returns the HMAC-SHA256 (RFC 2104) of a message under a key of any length.
Key hmac_sha256(std::string_view key, std::string_view message);
Key hmac_sha256(const Key& key, std::string_view message);

/// Compares in a time that does not depend on where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// Returns cryptographically secure random bytes. Throws Error where there are none.
Key random_key();

std::string_view bytes_of(const Key& key);

/// Writes a key as 64 hexadecimal letters, and reads it. Throws InvalidArgument for other text.
std::string hex_of(const Key& key);
Key key_of_hex(const std::string& text);

}  // namespace lockstep::net
