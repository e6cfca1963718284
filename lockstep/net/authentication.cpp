#include "lockstep/net/authentication.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/net/wire.h"

namespace lockstep::net {
namespace {

const unsigned char* data_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::uint8_t value_of_letter(char letter) {
  const auto value = std::string_view("0123456789abcdef").find(letter);
  check(value != std::string_view::npos, "key: not a small hexadecimal letter");
  return static_cast<std::uint8_t>(value);
}

constexpr std::size_t kFewest = 16, kMost = 4096;

void check_is_private(const FileDescriptor& file, const std::string& path) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw_errno("secret: look at", path);
  check(S_ISREG(facts.st_mode), "secret: ", path, " is not a file");
  check(facts.st_uid == ::geteuid() || facts.st_uid == 0, "secret: ", path,
      " belongs to another user, who knows what is in it");
  check((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0, "secret: ", path,
      " may be read or written by other users; chmod 600 ", path);
}

std::string secret_in(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw_errno("secret: open", path);
  check_is_private(file, path);
  std::string text(kMost + 1, '\0');
  const ssize_t size = retried([&] { return ::read(file.get(), text.data(), text.size()); });
  if (size < 0) throw_errno("secret: read", path);
  check(static_cast<std::size_t>(size) <= kMost, "secret: ", path, " holds more than ", kMost,
      " bytes");
  text.resize(static_cast<std::size_t>(size));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

constexpr std::string_view kMagic = "lockstep-meeting";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMostOfAJob = 256;
constexpr std::uint8_t kRefused = 0, kWelcome = 1, kTooLate = 2;  // what the last message is

Key digest_for(
    std::string_view purpose, std::string_view challenge, std::string_view answer, const Key& key) {
  return hmac_sha256(key, ByteWriter().text(purpose).text(challenge).text(answer).bytes());
}

void check_head(ByteReader& reader, const char* who) {
  if (reader.raw(kMagic.size()) != kMagic)
    throw DataError(concat("handshake: the ", who, " is no lockstep"));
  const int version = reader.byte();
  if (version != kVersion)
    throw DataError(concat("handshake: the ", who, " speaks version ", version,
        " of the protocol, we speak ", int{kVersion}, "; run the same lockstep on all hosts"));
}

/// Returns an answer without the proof at its end.
std::string_view said_in(std::string_view answer) {
  if (answer.size() < kKeyBytes) throw DataError("handshake: the answer is too short");
  return answer.substr(0, answer.size() - kKeyBytes);
}

constexpr std::size_t kTagBytes = 16;  // half of an HMAC-SHA256, as RFC 2104 allows

// The sequence number is not sent: both ends count.
std::string tag_of(const Key& key, std::int64_t number, std::string_view message) {
  const Key digest = hmac_sha256(key, ByteWriter().number(number).raw(message).bytes());
  return std::string(bytes_of(digest).substr(0, kTagBytes));
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

Key key_of_hex(const std::string& text) {
  Key key{};
  check(text.size() == 2 * key.size(), "key: must have ", 2 * key.size(), " letters");
  for (std::size_t i = 0; i < key.size(); ++i) {
    const int byte = value_of_letter(text[2 * i]) << 4 | value_of_letter(text[2 * i + 1]);
    key[i] = static_cast<std::uint8_t>(byte);
  }
  return key;
}

std::string shared_secret(const std::string& file) {
  const std::string origin = file.empty() ? kSecretVariable : file;
  std::string secret;
  if (!file.empty()) {
    secret = secret_in(file);
  } else if (const auto given = environment(kSecretVariable)) {
    secret = *given;
  } else {
    return {};
  }
  check(secret.size() >= kFewest, "secret: ", origin, " has ", secret.size(),
      " bytes, too few to keep a stranger out; take ", kFewest,
      " or more, such as of: openssl rand -hex 32");
  return secret;
}

std::string challenge_of(const Key& nonce) {
  return ByteWriter().raw(kMagic).byte(kVersion).raw(bytes_of(nonce)).take();
}

std::string answer_to(
    std::string_view challenge, const Hello& hello, const Key& nonce, const Key& key) {
  ByteReader reader(challenge);
  check_head(reader, "server");
  reader.raw(kKeyBytes);
  reader.finish();
  ByteWriter answer;
  answer.raw(kMagic).byte(kVersion).byte(hello.role);
  answer.number(hello.generation).text(hello.job).raw(bytes_of(nonce));
  const Key proof = digest_for("client", challenge, answer.bytes(), key);
  return answer.raw(bytes_of(proof)).take();
}

Hello hello_of(std::string_view answer) {
  ByteReader reader(said_in(answer));
  check_head(reader, "client");
  Hello hello;
  hello.role = reader.one_of(Role::kRank, "handshake");
  hello.generation = reader.number();
  hello.job = reader.text();
  if (hello.job.size() > kMostOfAJob) throw DataError("handshake: the run's id is too long");
  reader.raw(kKeyBytes);
  reader.finish();
  return hello;
}

bool knows_key(std::string_view challenge, std::string_view answer, const Key& key) {
  const std::string_view said = said_in(answer);
  const Key proof = digest_for("client", challenge, said, key);
  return equal_in_constant_time(answer.substr(said.size()), bytes_of(proof));
}

std::string welcome_of(std::string_view challenge, std::string_view answer, const Key& key) {
  const Key proof = digest_for("server", challenge, answer, key);
  return ByteWriter().byte(kWelcome).raw(bytes_of(proof)).take();
}

std::string refusal_of(const std::string& why, bool too_late) {
  return ByteWriter().byte(too_late ? kTooLate : kRefused).text(why).take();
}

void check_welcome(
    std::string_view welcome, std::string_view challenge, std::string_view answer, const Key& key) {
  ByteReader reader(welcome);
  const std::uint8_t kind = reader.byte();
  if (kind == kTooLate) throw CommError(reader.text());
  if (kind != kWelcome) throw InvalidArgument(reader.text());
  const Key proof = digest_for("server", challenge, answer, key);
  if (!equal_in_constant_time(reader.raw(kKeyBytes), bytes_of(proof)))
    throw InvalidArgument("what listens there does not know the secret");
  reader.finish();
}

SessionKeys session_keys(std::string_view challenge, std::string_view answer, const Key& key) {
  return {.to_server = digest_for("to server", challenge, answer, key),
      .to_client = digest_for("to client", challenge, answer, key)};
}

Key key_of_run(const std::string& secret, const std::string& job) {
  return hmac_sha256(secret, ByteWriter().text("lockstep run").text(job).bytes());
}

Key key_of_generation(const Key& run, std::int64_t generation, const Key& salt) {
  return hmac_sha256(
      run, ByteWriter().text("generation").number(generation).raw(bytes_of(salt)).bytes());
}

std::string Sealer::seal(std::string_view message) {
  return tag_of(key_, number_++, message).append(message);
}

std::string Opener::open(std::string_view sealed) {
  if (sealed.size() < kTagBytes) throw DataError("message: it has no tag");
  const std::string_view message = sealed.substr(kTagBytes);
  if (!equal_in_constant_time(sealed.substr(0, kTagBytes), tag_of(key_, number_++, message)))
    throw DataError("message: authentication failed");
  return std::string(message);
}

}  // namespace lockstep::net
