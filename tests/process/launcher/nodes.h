#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/process/command.h"

#include "lockstep/net/endpoint.h"

namespace lockstep::testing {

/// The launchers of several nodes on this host, which find each other at a port of it.
class Nodes {
 public:
  explicit Nodes(std::string flags) : flags_(std::move(flags)) {}

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_.number()); }
  int port() const { return port_.number(); }

  /// Starts a node that runs a script as each of its two ranks.
  Command& start(const std::string& script, const Words& variables = {}) {
    return start_program({"sh", "-c", script}, variables);
  }

  Command& start_program(const Words& program, const Words& variables = {}) {
    Words all =
        words("run --nproc-per-node 2 --rdzv-backend lockstep --log-line-prefix= --rdzv-endpoint " +
              endpoint() + " " + flags_ + " --");
    all.insert(all.end(), program.begin(), program.end());
    nodes_.push_back(std::make_unique<Command>(all, variables));
    return *nodes_.back();
  }

  /// Starts two, the first of which serves.
  void start_two(const std::string& script, const Words& variables = {}) {
    start_two_of({"sh", "-c", script}, variables);
  }

  void start_two_of(const Words& program, const Words& variables = {}) {
    start_program(program, variables);
    await_first();
    start_program(program, variables);
  }

  /// Waits until the first one serves, and waits for others.
  void await_first() {
    nodes_[0]->wait_until([&] { return says(*nodes_[0], "waiting: 1 of "); });
  }

  Command& operator[](std::size_t number) { return *nodes_[number]; }

  static bool says(const Command& node, const std::string& text) {
    return node.err().find(text) != std::string::npos;
  }

 private:
  net::ReservedPort port_;  // nobody else is given it
  std::string flags_;
  std::vector<std::unique_ptr<Command>> nodes_;
};

}  // namespace lockstep::testing
