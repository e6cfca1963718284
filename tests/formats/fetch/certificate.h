#pragma once

#include <filesystem>

namespace lockstep::testing {

/// A certificate that vouches for 127.0.0.1 and for itself, and its key, as PEM files.
struct Certificate {
  std::filesystem::path certificate;
  std::filesystem::path key;
};

/// Makes a new key and its certificate, good for an hour, as NAME.pem and NAME.key.
Certificate make_certificate(const std::filesystem::path& folder, const std::string& name);

}  // namespace lockstep::testing
