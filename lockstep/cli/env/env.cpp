#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/cli/env/host_facts.h"
#include "lockstep/cli/env/nvidia_smi.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/flags/flag_table.h"

namespace lockstep::cli {
namespace {

constexpr const char* kEnvExamples = R"(Examples:
  lockstep env                    to read, or to paste into a report
  lockstep env --check-devices    try this host's GPUs, and ways of training on them
  lockstep env --json | jq .processor.extensions)";

bool is_bytes(const std::string& name) {
  constexpr std::string_view kEnding = "_bytes";
  return name.size() > kEnding.size() &&
         name.compare(name.size() - kEnding.size(), kEnding.size(), kEnding) == 0;
}

std::string in_words(const std::string& name, const Facts& value) {
  if (value.is_null()) return "none";
  if (is_bytes(name) && value.is_number()) return bytes_in_words(value.get<double>());
  if (value.is_string()) return value.get<std::string>().empty() ? "none" : value;
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Facts& item : value) {
    if (!list.empty()) list += ' ';
    list += in_words("", item);
  }
  return list.empty() ? "none" : list;
}

std::string label_of(std::string name) {
  if (is_bytes(name)) name.resize(name.size() - 6);
  for (char& letter : name) {
    if (letter == '_') letter = ' ';
  }
  return name;
}

// For people: a line for each GPU and for each pair of them.
Facts gpu_lines(const Facts& facts) {
  Facts lines = facts;
  lines.erase("gpus");
  lines.erase("connections");
  lines.erase("peer_access");
  const Facts gpus = facts.value("gpus", Facts::array());
  for (const Facts& gpu : gpus)
    lines[concat("gpu_", gpu["index"].get<int>())] =
        concat(gpu["name"].get<std::string>(), ", ", in_words("memory_bytes", gpu["memory_bytes"]),
            ", driver ", gpu["driver"].get<std::string>(), ", ", gpu["uuid"].get<std::string>());
  const Facts connections = facts.value("connections", Facts::object());  // items() refers to it
  const Facts peers = facts.value("peer_access", Facts::object());
  for (const auto& [pair, code] : connections.items()) {
    lines[pair] = connection_in_words(code.get<std::string>());
    if (peers.contains(pair))
      lines[pair] = concat(lines[pair].get<std::string>(), ", ",
          peer_access_in_words(peers[pair].get<std::string>()));
  }
  return lines;
}

void print(const Facts& facts) {
  for (const auto& [section, entries] : facts.items()) {
    std::cout << section << '\n';
    const bool verbatim = section == "variables";
    for (const auto& [name, value] : entries.items()) {
      std::cout << "  " << std::left << std::setw(24) << (verbatim ? name : label_of(name)) << ' '
                << in_words(name, value) << '\n';
    }
  }
}

}  // namespace

int env(const std::vector<std::string>& arguments) {
  struct Request {
    bool json = false;
    bool check_devices = false;
    std::string device = "auto";
  };
  const FlagTable<Request> table({.verb = "env",
                                     .usage = "lockstep env [--json | --check-devices]",
                                     .description = "Shows facts about this host and this build.\n",
                                     .footer = kEnvExamples},
      {{"Options",
          {flag_on("--json", "print one JSON object", &Request::json),
              flag_on("--check-devices", "test this host's accelerators and print the results",
                  &Request::check_devices),
              flag("--device", "TYPE", "type to test: cuda, or another that LibTorch supports",
                  &Request::device)}}});
  const auto request = table.request(arguments, std::cout);
  if (!request) return 0;
  check(request->check_devices || request->device == "auto",
      "env: --device says what --check-devices tests; add it");
  check(!request->check_devices || !request->json, "env: --check-devices has no --json");
  if (request->check_devices)
    become("env", sibling_program("env", "lockstep-train"), {"--check-devices", request->device});
  Facts facts = environment_facts();
  if (request->json) {
    std::cout << facts.dump() << '\n';
    return 0;
  }
  facts.erase("v");
  facts["gpu"] = gpu_lines(facts["gpu"]);
  print(facts);
  return 0;
}

}  // namespace lockstep::cli
