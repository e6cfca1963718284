#pragma once

#include <cstdint>
#include <string>

#include "lockstep/formats/checksum.h"

namespace lockstep::testing {

/// Returns a manifest the SHA-256 that fits what stands before it; the text ends with the key.
inline std::string with_true_digest(const std::string& text) {
  const std::size_t key = text.rfind(R"(,"sha256":")");
  const std::string front = text.substr(0, key == std::string::npos ? text.size() : key);
  Sha256 digest;
  digest.update({reinterpret_cast<const std::uint8_t*>(front.data()), front.size()});
  return front + R"(,"sha256":")" + digest.finish() + "\"}\n";
}

}  // namespace lockstep::testing
