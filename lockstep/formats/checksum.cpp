#include "lockstep/formats/checksum.h"

#include <array>
#include <new>
#include <openssl/evp.h>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

void require(int success, const char* what) {
  if (success != 1) throw Error(concat("sha256: OpenSSL failed in ", what));
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const noexcept { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_) throw std::bad_alloc();
  require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), "EVP_DigestInit_ex");
}

void Sha256::update(std::span<const std::uint8_t> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), "EVP_DigestUpdate");
}

std::string Sha256::finish() {
  std::array<unsigned char, kSha256Letters / 2> digest{};
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr), "EVP_DigestFinal_ex");
  return hex_of(digest);
}

std::string sha256_of(ByteSource& source) {
  Sha256 digest;
  std::vector<std::uint8_t> piece(kPiece);
  for (std::size_t count = kPiece; count == kPiece;) {
    count = source.read(piece);
    digest.update(std::span(piece).first(count));
    sign_of_life();
  }
  return digest.finish();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  InputFile file(path);
  return sha256_of(file);
}

bool is_sha256(const std::string& text) {
  return text.size() == kSha256Letters &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace lockstep
