#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/rendezvous/boot_clock.h"
#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/launch/rendezvous/succession.h"
#include "lockstep/net/client.h"

namespace lockstep::launch {

/// A node's part in the rendezvous, on a thread of its own: it tells that the node lives, and
/// follows the next one that serves as soon as the last is lost, whatever the launcher is busy
/// with, be it a log on a slow disk.
class Membership {
 public:
  /// Connects to the node that serves. Throws as net::Client does. The succession must live longer.
  Membership(
      Succession& succession, std::chrono::milliseconds beat, std::chrono::milliseconds dead_after);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();

  /// Returns a descriptor that becomes readable when hear() has news.
  int descriptor() const { return news_.get(); }

  /// Joins with the succession's facts, and begins to listen. Once.
  void join();

  /// Tells the server something. Nothing is thrown here: that it is lost is seen by hear().
  void tell(const AgentMessage& message);

  /// Returns the next order of the present server, if one has come, and the number of that server,
  /// which each one that is followed raises. What an earlier one had ordered is over.
  std::optional<Order> hear(int& server);

  /// Says whether none is left to follow.
  bool is_lost() const { return is_lost_; }

  /// Begins ranks of a generation that this server has ordered; false if that one is lost already.
  bool begin(std::int64_t generation, int server);

  /// Returns this node's address on the way to the server.
  const std::string& address() const { return address_; }

 private:
  using Clock = BootClock;

  void run();
  void listen();
  void await() const;
  bool take_orders();
  void send_all();
  void beat_if_due();
  bool follow();
  void introduce();
  void ring(const FileDescriptor& bell) const;

  Succession& succession_;
  std::chrono::milliseconds beat_, dead_after_;
  FileDescriptor news_, wake_;
  // Of the thread alone.
  std::optional<net::Client> client_;
  Clock::time_point last_beat_, last_heard_;
  std::string address_;

  std::mutex mutex_;
  std::deque<AgentMessage> outbox_;
  std::deque<Order> inbox_;
  std::int64_t begun_ = 0;             // the last generation of which there were ranks here
  std::optional<AgentMessage> ended_;  // what was told of their end
  std::optional<AgentMessage> leave_;  // that this node goes
  int server_ = 0;
  std::atomic<bool> is_lost_{false}, is_over_{false};
  std::thread thread_;
};

}  // namespace lockstep::launch
