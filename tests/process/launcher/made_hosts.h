#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/process/command.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::testing {

/// Hosts that are made within this machine, with real processes and sockets. This needs root.
class MadeHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!launch::hosts_missing().empty()) GTEST_SKIP() << launch::hosts_missing();
  }

  /// Returns the arguments of `lockstep hosts LINE sh -c SCRIPT`.
  static Words shell_on(const std::string& line, const std::string& script) {
    Words all = words("hosts " + line + " sh -c");
    all.push_back(script);
    return all;
  }

  /// Returns the arguments by which two hosts run a script.
  static Words two(const std::string& script, const std::string& flags = "") {
    return shell_on("--count 2 " + flags + " --", script);
  }

  /// Returns the arguments by which one rank on each of two hosts trains.
  static Words training(const std::string& hosts, const std::string& flags) {
    return words("hosts --count 2 " + hosts + " -- lockstep run --nproc-per-node 1 -- " +
                 "lockstep train --model toy --data mock " + flags);
  }

  static Ended train(const std::string& hosts, const std::string& flags) {
    return run_command(training(hosts, flags));
  }

  static nlohmann::json summary(const std::string& run) {
    return nlohmann::json::parse(contents(run + "/summary.json"));
  }
};

}  // namespace lockstep::testing
