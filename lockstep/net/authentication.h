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

/// Compares in constant time.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// Returns cryptographically secure random bytes. Throws Error where there are none.
Key random_key();

std::string_view bytes_of(const Key& key);

/// Reads a key that hex_of() wrote. Throws InvalidArgument for other text.
Key key_of_hex(const std::string& text);

/// The variable with the secret that the nodes of a run share.
inline constexpr const char* kSecretVariable = "LOCKSTEP_SECRET";

/// Returns the secret: what the file holds, without an end of line; without a file the value of
/// LOCKSTEP_SECRET; without that nothing.
///
/// Throws InvalidArgument for a file that others may read or that is not ours or root's, and for a
/// secret of less than 16 bytes; std::system_error for one that cannot be read.
std::string shared_secret(const std::string& file);

// Note [Handshake]
// Server to client: a challenge with a nonce. Client to server: a hello with what it wants, a nonce
// of its own, and an HMAC of both under the key. Server to client: a welcome with another HMAC of
// both, or a refusal. Neither shows the key, both show that they know it, now, for this run; a
// recorded hello does not fit another challenge. Two further HMACs of both are the keys of the two
// directions from then on.

/// The kinds of clients.
enum class Role : std::uint8_t {
  kAgent = 0,  ///< the launcher of a node
  kRank = 1,   ///< a rank of one generation, which has a key of its own
};

/// The client's hello message.
struct Hello {
  std::string job;  ///< the run's id
  Role role = Role::kAgent;
  std::int64_t generation = 0;  ///< of a rank
};

/// Makes the server's first message.
std::string challenge_of(const Key& nonce);

/// Makes the client's answer to it. Throws DataError where the server speaks another protocol.
std::string answer_to(
    std::string_view challenge, const Hello& hello, const Key& nonce, const Key& key);

/// Reads the hello of an answer, before authentication. Throws DataError for other bytes.
Hello hello_of(std::string_view answer);

/// Returns whether the answer to this challenge was made with the key.
bool knows_key(std::string_view challenge, std::string_view answer, const Key& key);

/// Makes the server's last message: a client without the key learns only that it was refused.
std::string welcome_of(std::string_view challenge, std::string_view answer, const Key& key);

/// Makes the refusal that takes its place; `too_late` is for a client that knows the key.
std::string refusal_of(const std::string& why, bool too_late = false);

/// Verifies that the server's last message is a welcome made with the key. Throws InvalidArgument
/// with the refusal otherwise, CommError if we came too late.
void check_welcome(
    std::string_view welcome, std::string_view challenge, std::string_view answer, const Key& key);

/// The keys of the two directions of a connection.
struct SessionKeys {
  Key to_server, to_client;
};
SessionKeys session_keys(std::string_view challenge, std::string_view answer, const Key& key);

/// Derives the key of a run from the secret that its nodes share, and that of a generation's ranks,
/// which do not get the run's.
Key key_of_run(const std::string& secret, const std::string& job);
Key key_of_generation(const Key& run, std::int64_t generation, const Key& salt);

/// Authenticates the messages of one direction of a connection, in their order: none can be forged,
/// changed, left out, repeated, or sent back to its sender.
class Sealer {
 public:
  explicit Sealer(const Key& key) : key_(key) {}

  /// Returns the message after its authentication tag.
  std::string seal(std::string_view message);

 private:
  Key key_;
  std::int64_t number_ = 0;
};

/// Verifies and removes the tags at the other end.
class Opener {
 public:
  explicit Opener(const Key& key) : key_(key) {}

  /// Throws DataError for a message that was not sealed as the next one of this connection.
  std::string open(std::string_view sealed);

 private:
  Key key_;
  std::int64_t number_ = 0;
};

}  // namespace lockstep::net
