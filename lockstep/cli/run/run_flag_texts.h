#pragma once

#include <string>

#include <CLI/App.hpp>

namespace lockstep::cli {

/// Holds the flags of `lockstep run` as they were written, before anything is made of them.
struct RunFlagTexts {
  std::string workers = "1";
  std::string nodes = "1";
  int node_rank = 0;
  std::string master_address;
  int master_port = 0;
  std::string endpoint;
  std::string rendezvous_backend = "static";
  std::string run_id = "none";
  bool standalone = false;
  std::string role = "default";
  int max_restarts = 0;
  double monitor_interval = 0.1;
  double grace_seconds = 30;
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool no_pin = false;
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string shown_ranks;
  std::string prefix = "[rank ${rank}] ";
  bool no_python = false;
  bool verbose = false;
  bool quiet = false;
};

/// Adds all flags, with their help, to a parser.
void add_run_flags(CLI::App& app, RunFlagTexts& texts);

}  // namespace lockstep::cli
