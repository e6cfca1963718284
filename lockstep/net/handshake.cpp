#include "lockstep/net/handshake.h"

#include "lockstep/core/error.h"
#include "lockstep/net/message_bytes.h"

namespace lockstep::net {
namespace {

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

/// An answer without the proof at its end.
std::string_view said_in(std::string_view answer) {
  if (answer.size() < kKeyBytes) throw DataError("handshake: the answer is too short");
  return answer.substr(0, answer.size() - kKeyBytes);
}

}  // namespace

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
  answer.raw(kMagic).byte(kVersion).byte(static_cast<std::uint8_t>(hello.role));
  answer.number(hello.generation).text(hello.job).raw(bytes_of(nonce));
  const Key proof = digest_for("client", challenge, answer.bytes(), key);
  return answer.raw(bytes_of(proof)).take();
}

Hello hello_of(std::string_view answer) {
  ByteReader reader(said_in(answer));
  check_head(reader, "client");
  Hello hello;
  const std::uint8_t role = reader.byte();
  if (role > static_cast<std::uint8_t>(Role::kRank)) throw DataError("handshake: no such role");
  hello.role = static_cast<Role>(role);
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

}  // namespace lockstep::net
