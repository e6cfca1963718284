// What comes over the connections of a rendezvous: frames, the handshake, messages.

#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/store.h"
#include "lockstep/net/wire.h"

namespace {

namespace net = lockstep::net;
namespace launch = lockstep::launch;

using lockstep::testing::is_taken;
using lockstep::testing::require;

/// Cuts bytes that come in pieces into messages; refused ones end it.
std::vector<std::string> messages_in(const std::string& bytes, std::size_t piece) {
  net::FrameDecoder decoder(net::kLargestHandshake);
  std::vector<std::string> messages;
  is_taken([&] {
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      decoder.feed(bytes.substr(at, piece));
      while (auto message = decoder.next()) messages.push_back(*std::move(message));
    }
  });
  return messages;
}

/// Reads a message; what is accepted is written as the same bytes again.
template <typename Read>
void read(const std::string& bytes, Read read, bool is_canonical = true) {
  is_taken([&] {
    const auto message = read(bytes);
    const auto again = read(bytes_of(message));
    require(!is_canonical || bytes_of(message) == bytes);
    require(bytes_of(again) == bytes_of(message));
  });
}

void shake_hands(const std::string& bytes) {
  static const net::Key kKey = net::key_of_run("of sixteen bytes or more", "job");
  const std::string challenge = net::challenge_of({});
  is_taken([&] {
    net::hello_of(bytes);
    require(!net::knows_key(challenge, bytes, kKey));
  });
  is_taken([&] { net::answer_to(bytes, {.job = "job"}, {}, kKey); });
  require(
      !is_taken<lockstep::Error>([&] { net::check_welcome(bytes, challenge, "answer", kKey); }));
  require(!is_taken([&] { net::Opener(kKey).open(bytes); }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes = lockstep::testing::text_of(data, size);
  require(messages_in(bytes, 1) == messages_in(bytes, size + 1));
  shake_hands(bytes);
  read(bytes, net::store_request_of);
  read(bytes, net::store_reply_of);
  // Text for people is made harmless, and truth is any byte but 0: so these bytes may change.
  read(bytes, launch::agent_message_of, false);
  read(bytes, launch::order_of, false);
  return 0;
}
