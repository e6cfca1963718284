#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "lockstep/formats/byte_stream.h"

struct evp_md_ctx_st;

namespace lockstep {

/// The letters of a SHA-256 as hexadecimal text.
inline constexpr std::size_t kSha256Letters = 64;

/// A SHA-256 (FIPS 180-4) of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::uint8_t> bytes);

  /// Returns the digest of all that came as 64 small hexadecimal letters; the object is spent then.
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const noexcept;
  };

  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// Reads a source to its end and gives its SHA-256.
std::string sha256_of(ByteSource& source);

/// Returns the SHA-256 of a file, in pieces: a file of any size needs 1 MiB. Errors are
/// InputFile's.
std::string sha256_of_file(const std::filesystem::path& path);

/// Returns whether a text is a SHA-256: 64 small hexadecimal letters.
bool is_sha256(const std::string& text);

}  // namespace lockstep
