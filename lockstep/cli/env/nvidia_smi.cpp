#include "lockstep/cli/env/nvidia_smi.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <regex>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSmiSeconds = 5;  // for each question; a hung driver never answers

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The last field keeps its commas: it is a name.
std::vector<std::string> csv_fields(const std::string& line, std::size_t most) {
  std::vector<std::string> fields;
  std::size_t start = 0;
  while (fields.size() + 1 < most) {
    const auto comma = line.find(',', start);
    if (comma == std::string::npos) break;
    fields.push_back(trimmed(line.substr(start, comma - start)));
    start = comma + 1;
  }
  fields.push_back(trimmed(line.substr(start)));
  return fields;
}

// A terminal's underline stands around the column names, even in a pipe.
std::vector<std::string> topology_words(const std::string& line) {
  static const std::regex kEscape("\x1b\\[[0-9;]*m");
  std::istringstream stream(std::regex_replace(line, kEscape, ""));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_gpu_name(const std::string& word) {
  return word.starts_with("GPU") && parse_number<int>(word.substr(3)).has_value();
}

// Reads until the other end is closed, which a program does by ending.
std::string read_within(const FileDescriptor& pipe, const std::string& program, double seconds) {
  const Stopwatch watch;
  std::string text;
  for (char bytes[4096];;) {
    pollfd waited{pipe.get(), POLLIN, 0};
    const double left = seconds - watch.seconds();
    if (left <= 0 || ::poll(&waited, 1, static_cast<int>(std::ceil(left * 1000))) == 0)
      throw std::system_error(ETIMEDOUT, std::generic_category(),
          concat(program, " did not answer within ", seconds, " s"));
    const auto count = ::read(pipe.get(), bytes, sizeof(bytes));
    if (count == 0) return text;
    if (count > 0) text.append(bytes, static_cast<std::size_t>(count));
  }
}

// A program may close its output and go on.
void wait_for_end(launch::ChildProcess& child, const std::string& program, double seconds) {
  pollfd waited{child.descriptor(), POLLIN, 0};
  ::poll(&waited, 1, static_cast<int>(std::ceil(seconds * 1000)));
  const auto status = child.status();
  if (!status || !status->succeeded())
    throw std::system_error(EIO, std::generic_category(),
        concat(program, " ", status ? status->text() : "does not end"));
}

}  // namespace

Json parse_gpu_query(const std::string& text) {
  Json gpus = Json::array();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto fields = csv_fields(line, 5);
    const auto index = parse_number<int>(fields[0]);
    if (fields.size() != 5 || !index) continue;
    const auto mebibytes = parse_number<int>(fields[3]);  // [N/A] where memory is shared
    gpus.push_back({{"index", *index}, {"name", fields[4]},
        {"memory_bytes", mebibytes ? Json(*mebibytes * 1048576.0) : Json(nullptr)},
        {"uuid", fields[1]}, {"driver", fields[2]}});
  }
  return gpus;
}

Json parse_gpu_topology(const std::string& text) {
  Json pairs = Json::object();
  std::vector<std::string> columns;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto words = topology_words(line);
    if (words.empty() || !is_gpu_name(words[0])) continue;
    if (columns.empty()) {  // the GPUs come first, in this order
      columns.assign(words.begin(), std::find_if_not(words.begin(), words.end(), is_gpu_name));
      continue;
    }
    for (std::size_t i = 0; i < columns.size() && i + 1 < words.size(); ++i) {
      if (words[i + 1] == "X") break;  // what follows comes again in a later row
      pairs[columns[i] + "-" + words[0]] = words[i + 1];
    }
  }
  return pairs;
}

std::string connection_in_words(const std::string& code) {
  static const std::vector<std::pair<std::string, std::string>> kWords{{"PIX", "one PCIe switch"},
      {"PXB", "several PCIe switches"}, {"PHB", "PCIe, by way of a processor"},
      {"NODE", "PCIe, within a NUMA node"}, {"SYS", "PCIe, between NUMA nodes"}};
  for (const auto& [name, words] : kWords)
    if (code == name) return words;
  const auto links = code.starts_with("NV") ? parse_number<int>(code.substr(2)) : std::nullopt;
  return links ? concat(*links, *links == 1 ? " NVLink" : " NVLinks") : code;
}

std::string output_of(
    const std::string& program, const std::vector<std::string>& arguments, double limit_seconds) {
  launch::ChildOptions options;
  options.program = launch::find_program(program, system_variable("PATH"));
  options.arguments = arguments;
  options.environment = launch::current_environment();
  launch::ChildProcess child(options);
  const FileDescriptor errors = child.take_errors();  // open until it ends, so that it can write
  const std::string text = read_within(child.take_output(), program, limit_seconds);
  wait_for_end(child, program, limit_seconds);
  return text;
}

std::string peer_access_in_words(const std::string& code) {
  if (code == "OK") return "peer access";
  return code == "NS" || code == "CNS" || code == "GNS" || code == "TNS"
             ? "no peer access"
             : concat("peer access: ", code);
}

namespace {

// None of older ones, which do not know the question.
Json topology(const std::vector<std::string>& arguments) try {
  return parse_gpu_topology(output_of("nvidia-smi", arguments, kSmiSeconds));
} catch (const std::system_error&) {
  return Json::object();
}

}  // namespace

Json nvidia_smi_facts() try {
  Json facts;
  facts["gpus"] = parse_gpu_query(output_of("nvidia-smi",
      {"--query-gpu=index,uuid,driver_version,memory.total,name", "--format=csv,noheader,nounits"},
      kSmiSeconds));
  const bool has_pairs = facts["gpus"].size() > 1;
  facts["connections"] = has_pairs ? topology({"topo", "-m"}) : Json::object();
  facts["peer_access"] = has_pairs ? topology({"topo", "-p2p", "r"}) : Json::object();
  return facts;
} catch (const InvalidArgument&) {
  return {{"nvidia_smi", "not in PATH"}};
} catch (const std::system_error& error) {
  return {{"nvidia_smi", error.what()}};
}

}  // namespace lockstep::cli
