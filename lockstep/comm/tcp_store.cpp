// Stores over TCP: c10d's, on one address and with an end to each wait; and the one that the
// launchers of several nodes serve their ranks (launch/rendezvous).

#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/comm/ask_store.h"
#include "lockstep/comm/store.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/store.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFirstPause(5), kLongestPause(500);
constexpr milliseconds kLongestHandshake(5000);  // then the host's next address is tried

/// The reason why a client does not reach its store. Its thread writes here, and may outlive the
/// wait for it.
class Obstacle {
 public:
  void set(const std::string& text) {
    const std::lock_guard lock(mutex_);
    text_ = text;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_ = "the host name was not resolved in time";
};

net::Endpoint endpoint_of(const TcpStoreOptions& options) {
  return {.host = options.host, .port = options.port, .is_of_one_host = !options.for_other_hosts};
}

bool is_listening(const TcpStoreOptions& options, Obstacle& obstacle) {
  const net::Connection found = net::connect_to(endpoint_of(options), kLongestHandshake);
  if (found.obstacle.empty()) return true;
  obstacle.set(found.error == 0
                   ? found.obstacle
                   : concat("rank 0 does not listen there: ", std::strerror(found.error)));
  return false;
}

std::string name_for(const TcpStoreOptions& options) {
  return options.for_other_hosts ? reachable_name(options.host) : options.host;
}

c10d::TCPStoreOptions settings_of(const TcpStoreOptions& options) {
  c10d::TCPStoreOptions settings;
  settings.port = static_cast<std::uint16_t>(options.port);
  settings.isServer = options.serve;
  settings.waitWorkers = false;
  settings.timeout = options.timeout;
  return settings;
}

/// Waits until somebody listens, which costs nothing, and only then lets c10d connect: it would log
/// each try. Rank 0, or the name of its host, may appear later than we. Empty: the time was over.
Store connect(const TcpStoreOptions& options, Obstacle& obstacle) {
  const QuietLog quiet;  // here, for a thread that stays behind
  const auto end = Clock::now() + options.timeout;
  for (milliseconds pause = kFirstPause; !is_listening(options, obstacle);
       pause = std::min(2 * pause, kLongestPause)) {
    if (Clock::now() + pause > end) return {};
    std::this_thread::sleep_for(pause);
  }
  obstacle.set("what listens there does not answer as the store of rank 0");
  return c10::make_intrusive<c10d::TCPStore>(name_for(options), settings_of(options));
}

// The store would listen on every interface; it takes a socket that listens on one instead, and
// closes it, even when it throws.
Store serve(const TcpStoreOptions& options) {
  const QuietLog quiet;
  FileDescriptor socket = net::listen_on(endpoint_of(options));
  c10d::TCPStoreOptions settings = settings_of(options);
  settings.port = static_cast<std::uint16_t>(net::port_of_socket(socket));
  const std::string address = net::own_address(socket);
  settings.masterListenFd = socket.release();
  return c10::make_intrusive<c10d::TCPStore>(address, settings);
}

Store connect_or_serve(const TcpStoreOptions& options, const std::shared_ptr<Obstacle>& obstacle) {
  if (options.serve) return serve(options);
  const auto store =
      within(options.timeout, [options, obstacle] { return connect(options, *obstacle); });
  return store.value_or(Store());
}

using Bytes = std::vector<std::uint8_t>;
using net::StoreOp;

std::string text_of_bytes(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
Bytes bytes_of_text(const std::string& text) { return {text.begin(), text.end()}; }

class LauncherStore final : public c10d::Store {
 public:
  explicit LauncherStore(const net::ClientOptions& options)
      : c10d::Store(options.timeout), options_(options), client_(options) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<LauncherStore>(options_);
  }

  using c10d::Store::compareSet;
  using c10d::Store::set;

  void set(const std::string& key, const Bytes& value) override {
    ask({.op = StoreOp::kSet, .keys = {key}, .values = {text_of_bytes(value)}});
  }

  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& wanted) override {
    const auto reply = ask({.op = StoreOp::kCompareSet,
        .keys = {key},
        .values = {text_of_bytes(expected), text_of_bytes(wanted)}});
    return bytes_of_text(reply.values.at(0));
  }

  Bytes get(const std::string& key) override { return multiGet({key}).at(0); }

  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return ask({.op = StoreOp::kAdd, .keys = {key}, .number = amount}).number;
  }

  bool deleteKey(const std::string& key) override {
    return ask({.op = StoreOp::kDelete, .keys = {key}}).number != 0;
  }

  bool check(const std::vector<std::string>& keys) override {
    return ask({.op = StoreOp::kCheck, .keys = keys}).number != 0;
  }

  std::int64_t getNumKeys() override { return ask({.op = StoreOp::kCount}).number; }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }

  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    client_.ask({.op = StoreOp::kWait, .keys = keys}, timeout);
  }

  void append(const std::string& key, const Bytes& value) override {
    ask({.op = StoreOp::kAppend, .keys = {key}, .values = {text_of_bytes(value)}});
  }

  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    std::vector<Bytes> values;
    for (const std::string& value : ask({.op = StoreOp::kGet, .keys = keys}).values)
      values.push_back(bytes_of_text(value));
    lockstep::check(values.size() == keys.size(), "store: an answer of another length");
    return values;
  }

  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override {
    lockstep::check(keys.size() == values.size(), "store: each key needs a value");
    net::StoreRequest request{.op = StoreOp::kSet, .keys = keys};
    for (const Bytes& value : values) request.values.push_back(text_of_bytes(value));
    ask(std::move(request));
  }

  bool hasExtendedApi() const override { return true; }

 private:
  net::StoreReply ask(net::StoreRequest request) {
    return client_.ask(std::move(request), timeout_);
  }

  net::ClientOptions options_;
  net::StoreClient client_;
};

}  // namespace

Store tcp_store(const TcpStoreOptions& options) {
  const auto obstacle = std::make_shared<Obstacle>();
  const std::string what = concat("store: no connection to ", options.host, ":", options.port);
  try {
    Store store = connect_or_serve(options, obstacle);
    if (store) return store;
  } catch (const c10::Error& error) {
    throw CommError(concat(what, ": ", first_line(error.what())));
  }
  throw TimeoutError(concat(what, " within ", options.timeout.count(), " ms: ", obstacle->text()));
}

int port_of(const Store& store) {
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(store.get());
  check(tcp != nullptr, "port_of: this store is not served over TCP");
  return tcp->getPort();
}

std::optional<LauncherStoreOptions> launcher_store_from_environment() {
  const auto place = environment("LOCKSTEP_STORE"), key = environment("LOCKSTEP_STORE_KEY");
  const auto generation = environment_number("LOCKSTEP_GENERATION", 1);
  // Under another launcher inside ours these variables are of the outer one.
  if (!place || !key || !generation || environment("TORCHELASTIC_USE_AGENT_STORE") != "False")
    return std::nullopt;
  return LauncherStoreOptions{.place = *place,
      .key = *key,
      .generation = *generation,
      .run = environment("TORCHELASTIC_RUN_ID").value_or("")};
}

Store launcher_store(const LauncherStoreOptions& options) {
  const auto endpoint = net::parse_endpoint("LOCKSTEP_STORE", options.place, 0);
  return c10::make_intrusive<LauncherStore>(net::ClientOptions{.endpoint = endpoint,
      .hello = {.job = options.run, .role = net::Role::kRank, .generation = options.generation},
      .key = net::key_of_hex(options.key),
      .timeout = options.timeout});
}

}  // namespace lockstep
