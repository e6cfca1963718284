#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/net/hmac.h"

namespace lockstep::net {

// Note [Handshake]
// Server to client: a challenge with a nonce. Client to server: a hello with what it wants, a nonce
// of its own, and an HMAC of both under the key. Server to client: a welcome with another HMAC of
// both, or a refusal. Neither shows the key, both show that they know it, now, for this run; a
// recorded hello does not fit another challenge. Two further HMACs of both are the keys of the two
// directions from then on.

/// The kinds of those who connect.
enum class Role : std::uint8_t {
  kAgent = 0,  ///< the launcher of a node
  kRank = 1,   ///< a rank of one generation of the world, which has a key of its own
};

/// The client's hello message.
struct Hello {
  std::string job;  ///< the run's id
  Role role = Role::kAgent;
  std::int64_t generation = 0;  ///< of a rank
};

/// Makes the server's first message.
std::string challenge_of(const Key& nonce);

/// Makes the client's answer to it. Throws DataError that says what the server is instead.
std::string answer_to(
    std::string_view challenge, const Hello& hello, const Key& nonce, const Key& key);

/// The hello of an answer, which proves nothing yet. Throws DataError for other bytes.
Hello hello_of(std::string_view answer);

/// Returns whether who wrote the answer to this challenge knows the key.
bool knows_key(std::string_view challenge, std::string_view answer, const Key& key);

/// Makes the server's last message: a client without the key learns only that it was refused.
std::string welcome_of(std::string_view challenge, std::string_view answer, const Key& key);

/// Makes the refusal that takes its place. One that comes `too_late` knew the key.
std::string refusal_of(const std::string& why, bool too_late = false);

/// Makes sure that the server's last message is a welcome by one who knows the key. Throws
/// InvalidArgument with the refusal otherwise, CommError if we came too late.
void check_welcome(
    std::string_view welcome, std::string_view challenge, std::string_view answer, const Key& key);

/// The keys of the two directions of a connection.
struct SessionKeys {
  Key to_server, to_client;
};
SessionKeys session_keys(std::string_view challenge, std::string_view answer, const Key& key);

/// Returns the key of a run, from the secret that its nodes share; and that of a generation's
/// ranks, who are not told the run's.
Key key_of_run(const std::string& secret, const std::string& job);
Key key_of_generation(const Key& run, std::int64_t generation, const Key& salt);

}  // namespace lockstep::net
