#include "lockstep/net/client.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "lockstep/core/error.h"

namespace lockstep::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause(5), kLongestPause(500), kLongestConnect(2000);
constexpr milliseconds kForAMessage(5000);

milliseconds left_until(Client::Clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - Client::Clock::now());
  return std::max(milliseconds(0), left);
}

}  // namespace

Client::Client(const ClientOptions& options) {
  const std::string what = concat("rendezvous: ", options.endpoint.text(), ": ");
  const auto end = Clock::now() + options.timeout;
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const std::string obstacle = try_once(options, end);
    if (obstacle.empty()) return;
    if (options.gives_up && options.gives_up()) throw CommError(what + "given up");
    if (refusals_ >= options.most_refusals) throw CommError(what + obstacle);
    if (Clock::now() + pause > end)
      throw TimeoutError(concat(what, obstacle, ", for ", options.timeout.count(), " ms"));
    std::this_thread::sleep_for(pause);
  }
}

std::string Client::try_once(const ClientOptions& options, Clock::time_point end) {
  Connection connection = connect_to(options.endpoint, std::min(kLongestConnect, left_until(end)));
  if (connection.error == ECONNREFUSED) ++refusals_;
  if (!connection.obstacle.empty()) return connection.obstacle;
  const std::string what = concat("rendezvous: ", options.endpoint.text(), ": ");
  socket_ = std::move(connection.socket);
  decoder_ = FrameDecoder(kLargestMessage);
  try {
    shake_hands(options);
    return "";
  } catch (const DataError& error) {
    throw InvalidArgument(what + error.what());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(what + error.what());
  } catch (const TimeoutError& error) {
    return error.what();  // the server also closes clients when too many connect
  }
}

void Client::shake_hands(const ClientOptions& options) {
  const auto message = [&](const char* name) {
    const auto end = Clock::now() + kLongestConnect;
    try {
      if (auto frame = next_frame(end)) return *std::move(frame);
    } catch (const CommError& error) {
      throw TimeoutError(error.what());
    }
    throw TimeoutError(concat("what listens there sends no ", name));
  };
  const std::string challenge = message("challenge");
  const std::string answer = answer_to(challenge, options.hello, random_key(), options.key);
  send_frame(answer);
  check_welcome(message("welcome"), challenge, answer, options.key);
  const SessionKeys keys = session_keys(challenge, answer, options.key);
  sealer_.emplace(keys.to_server);
  opener_.emplace(keys.to_client);
}

void Client::send(std::string_view message) { send_frame(sealer_->seal(message)); }

void Client::send_frame(std::string_view message) {
  const std::string frame = frame_of(message);
  const auto end = Clock::now() + kForAMessage;
  for (std::string_view rest = frame; !rest.empty();) {
    const ssize_t size =
        retried([&] { return ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL); });
    if (size < 0 && (errno != EAGAIN || !await(POLLOUT, end)))
      throw CommError("rendezvous: the server has gone, or reads nothing any more");
    if (size > 0) rest.remove_prefix(static_cast<std::size_t>(size));
  }
}

std::optional<std::string> Client::receive(Clock::time_point until) {
  try {
    const auto frame = next_frame(until);
    if (!frame) return std::nullopt;
    return opener_->open(*frame);
  } catch (const DataError& error) {
    throw CommError(concat("rendezvous: the server sends nonsense: ", error.what()));
  }
}

std::optional<std::string> Client::next_frame(Clock::time_point until) {
  while (true) {
    if (auto frame = decoder_.next()) return frame;
    char piece[kReadSize];
    const ssize_t size = retried([&] { return ::recv(socket_.get(), piece, kReadSize, 0); });
    if (size == 0) throw CommError("rendezvous: the server has closed the connection");
    if (size > 0)
      decoder_.feed({piece, static_cast<std::size_t>(size)});
    else if (errno != EAGAIN)
      throw CommError("rendezvous: the server has gone");
    else if (!await(POLLIN, until))
      return std::nullopt;
  }
}

bool Client::await(short event, Clock::time_point until) const {
  pollfd waited{socket_.get(), event, 0};
  const auto left = std::min<std::int64_t>(left_until(until).count(), 1'000'000'000);
  return retried([&] { return ::poll(&waited, 1, static_cast<int>(left)); }) > 0;
}

}  // namespace lockstep::net
