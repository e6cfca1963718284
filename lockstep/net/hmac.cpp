#include "lockstep/net/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "lockstep/core/error.h"

namespace lockstep::net {
namespace {

constexpr std::string_view kHexLetters = "0123456789abcdef";

const unsigned char* data_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::uint8_t value_of_letter(char letter) {
  const auto value = kHexLetters.find(letter);
  check(value != std::string_view::npos, "key: not a small hexadecimal letter");
  return static_cast<std::uint8_t>(value);
}

}  // namespace

Key hmac_sha256(std::string_view key, std::string_view message) {
  Key digest{};
  unsigned int size = 0;
  if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), data_of(message),
          message.size(), digest.data(), &size) == nullptr ||
      size != digest.size())
    throw Error("hmac: OpenSSL failed");
  return digest;
}

Key hmac_sha256(const Key& key, std::string_view message) {
  return hmac_sha256(bytes_of(key), message);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Key random_key() {
  Key key{};
  if (::RAND_bytes(key.data(), static_cast<int>(key.size())) != 1)
    throw Error("hmac: OpenSSL has no random bytes");
  return key;
}

std::string_view bytes_of(const Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

std::string hex_of(const Key& key) {
  std::string text;
  for (const std::uint8_t byte : key) {
    text += kHexLetters[byte >> 4];
    text += kHexLetters[byte & 15];
  }
  return text;
}

Key key_of_hex(const std::string& text) {
  Key key{};
  check(text.size() == 2 * key.size(), "key: must have ", 2 * key.size(), " letters");
  for (std::size_t i = 0; i < key.size(); ++i) {
    const int byte = value_of_letter(text[2 * i]) << 4 | value_of_letter(text[2 * i + 1]);
    key[i] = static_cast<std::uint8_t>(byte);
  }
  return key;
}

}  // namespace lockstep::net
