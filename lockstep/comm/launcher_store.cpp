// The store that the launchers of several nodes serve their ranks (launch/rendezvous).

#include <memory>

#include "lockstep/comm/store.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/net/store.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::uint8_t>;
using net::StoreOp;
using std::chrono::milliseconds;

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
