#include "lockstep/cli/env.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gnu/libc-version.h>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <regex>
#include <sstream>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/cluster/place.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::cli {
namespace {

constexpr double kSmiSeconds = 5;  // for each question; a hung driver never answers

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
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

// None of older ones, which do not know the question.
Facts topology(const std::vector<std::string>& arguments) try {
  return parse_gpu_topology(output_of("nvidia-smi", arguments, kSmiSeconds));
} catch (const std::system_error&) {
  return Facts::object();
}

Facts schedulers_of(const cluster::Surroundings& here) {
  const std::vector<std::pair<std::string, const char*>> known{{"Slurm", "SLURM_JOB_ID"},
      {"Open MPI", "OMPI_COMM_WORLD_SIZE"}, {"PMIx", "PMIX_RANK"}, {"PMI", "PMI_SIZE"},
      {"MVAPICH", "MV2_COMM_WORLD_SIZE"}, {"LSF", "LSB_JOBID"},
      {"Kubernetes", "KUBERNETES_SERVICE_HOST"}, {"torchrun or lockstep", "TORCHELASTIC_RUN_ID"}};
  Facts found = Facts::array();
  for (const auto& [name, variable] : known)
    if (here.has(variable)) found.push_back(name);
  return found;
}

std::string in_job(const std::string& job) { return job.empty() ? "" : concat(", job ", job); }

std::string alone(const std::string& note) { return note.empty() ? "alone" : "alone; " + note; }

std::string as_rank(const cluster::Surroundings& here) {
  const auto place = cluster::rank_place(here);
  if (here.has("RANK"))
    return concat("rank ", *here.text("RANK"), " of ", here.text("WORLD_SIZE").value_or("?"),
        " by RANK and WORLD_SIZE");
  if (!place) return alone(cluster::tasks_left_out(here));
  return concat("rank ", place->rank, " of ", place->size, " by ", place->source, ", ",
      place->local_rank, " of ", place->local_size, " on this node, meets at ",
      place->master_address, ":", place->master_port, in_job(place->job));
}

std::string as_launcher(const cluster::Surroundings& here) {
  if (const auto nodes = here.text("PET_NNODES"))
    return concat("node ", here.text("PET_NODE_RANK").value_or("0"), " of ", *nodes,
        " by PET_NNODES and PET_NODE_RANK");
  const auto place = cluster::node_place(here);
  if (!place) return alone(cluster::nodes_left_out(here));
  return concat("node ", place->node, " of ", place->nodes, " by ", place->source, ", node 0 is ",
      place->master_address.empty() ? "not known" : place->master_address, in_job(place->job));
}

// The user needs to see why a scheduler's variables are refused.
template <typename Say>
std::string or_refusal(const Say& say, const cluster::Surroundings& here) {
  try {
    return say(here);
  } catch (const InvalidArgument& error) {
    return concat("refused: ", error.what());
  }
}

namespace fs = std::filesystem;

std::string read_line(const fs::path& path) { return split(text_in(path), '\n').front(); }

/// Lists the entries of a folder whose names begin so.
std::vector<std::string> entries(const fs::path& folder, const std::string& start = "") {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(start)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string os_name() {
  std::ifstream file("/etc/os-release");
  const std::string key = "PRETTY_NAME=";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(key.size() + 1, line.size() - key.size() - 2);
  return "unknown";
}

Facts system_facts() {
  utsname name{};
  ::uname(&name);
  return {{"os", os_name()}, {"kernel", std::string(name.sysname) + " " + name.release},
      {"architecture", name.machine}, {"libc", std::string("glibc ") + ::gnu_get_libc_version()},
      {"host", name.nodename}};
}

/// Picks out of the processor's flags those that decide how fast tensors are.
Facts vector_extensions(const std::string& flags) {
  Facts found = Facts::array();
  const std::string padded = " " + flags + " ";
  for (const char* name :
      {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
          "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"})
    if (padded.find(std::string(" ") + name + " ") != std::string::npos) found.push_back(name);
  return found;
}

Facts or_null(const std::optional<double>& value) { return value ? Facts(*value) : Facts(nullptr); }

Facts processor_facts() {
  const std::string info = text_in("/proc/cpuinfo");
  Facts facts{{"model", field_of(info, "model name")},
      {"cores_online", ::sysconf(_SC_NPROCESSORS_ONLN)}, {"affinity", available_cpus()},
      {"cores_usable", usable_cpu_count()},
      {"numa_nodes", entries("/sys/devices/system/node", "node").size()},
      {"extensions", vector_extensions(field_of(info, "flags"))}};
  facts["cgroup_quota"] = or_null(cgroup_cpu_quota());
  return facts;
}

Facts memory_facts() {
  const std::string info = text_in("/proc/meminfo");
  struct statvfs shared {};
  ::statvfs("/dev/shm", &shared);
  const auto limit = cgroup_memory_limit();
  return {{"total_bytes", or_null(bytes_of(field_of(info, "MemTotal")))},
      {"available_bytes", or_null(bytes_of(field_of(info, "MemAvailable")))},
      {"swap_bytes", or_null(bytes_of(field_of(info, "SwapTotal")))},
      {"cgroup_limit_bytes", limit ? Facts(static_cast<double>(*limit)) : Facts(nullptr)},
      {"dev_shm_bytes",
          static_cast<double>(shared.f_blocks) * static_cast<double>(shared.f_frsize)},
      {"transparent_huge_pages", read_line("/sys/kernel/mm/transparent_hugepage/enabled")}};
}

Facts limit(int resource) {
  rlimit limits{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limits);
  if (limits.rlim_cur == RLIM_INFINITY) return "unlimited";
  return limits.rlim_cur;
}

Facts limit_facts() {
  return {{"open_files", limit(RLIMIT_NOFILE)}, {"processes", limit(RLIMIT_NPROC)},
      {"locked_memory_bytes", limit(RLIMIT_MEMLOCK)}, {"address_space_bytes", limit(RLIMIT_AS)},
      {"stack_bytes", limit(RLIMIT_STACK)}, {"core_bytes", limit(RLIMIT_CORE)}};
}

Facts network_facts() {
  Facts cards = Facts::object();
  for (const std::string& name : entries("/sys/class/net")) {
    const fs::path folder = fs::path("/sys/class/net") / name;
    const std::string speed = read_line(folder / "speed");  // not known for virtual ones
    const bool known = !speed.empty() && speed[0] != '-';
    const std::string state = read_line(folder / "operstate");
    cards[name] = known ? state + ", " + speed + " Mbit/s" : state;
  }
  return cards;
}

Facts gpu_facts() {
  Facts devices = Facts::array();
  const fs::path folder = "/proc/driver/nvidia/gpus";
  for (const std::string& name : entries(folder))
    devices.push_back(field_of(text_in(folder / name / "information"), "Model"));
  Facts facts{{"driver", read_line("/proc/driver/nvidia/version")}, {"devices", devices},
      {"usable", launch::gpu_count()}};
  facts.update(nvidia_smi_facts());
  return facts;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

// Lists the variables that change how fast or where ranks run.
Facts variables() {
  Facts facts = Facts::object();
  for (const char* name :
      {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY", "LD_PRELOAD",
          "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES", "ONEDNN_MAX_CPU_ISA", "RANK", "WORLD_SIZE"})
    if (const auto value = system_variable(name); !value.empty()) facts[name] = value;
  return facts;
}

constexpr const char* kEnvExamples = R"(Examples:
  lockstep env                    to read, or to paste into a report
  lockstep env --check-devices    try this host's GPUs, and ways of training on them
  lockstep env --json | jq .processor.extensions)";

bool is_bytes(const std::string& name) { return name.ends_with("_bytes"); }

std::string in_words(const std::string& name, const Facts& value) {
  if (value.is_null()) return "none";
  if (is_bytes(name) && value.is_number()) return bytes_in_words(value.get<double>());
  if (value.is_string()) return value.get<std::string>().empty() ? "none" : value;
  if (!value.is_array()) return value.dump();
  std::vector<std::string> items;
  for (const Facts& item : value) items.push_back(in_words("", item));
  return items.empty() ? "none" : joined(items, " ");
}

std::string label_of(std::string name) {
  if (is_bytes(name)) name.resize(name.size() - 6);
  std::ranges::replace(name, '_', ' ');
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
    for (const auto& [name, value] : entries.items())
      std::cout << "  " << std::left << std::setw(24) << (verbatim ? name : label_of(name)) << ' '
                << in_words(name, value) << '\n';
  }
}

}  // namespace

Facts parse_gpu_query(const std::string& text) {
  Facts gpus = Facts::array();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields = split(line, ',');
    for (std::string& field : fields) field = trimmed(field);
    const auto index = parse_number<int>(fields[0]);
    if (fields.size() < 5 || !index) continue;
    const auto mebibytes = parse_number<int>(fields[3]);  // [N/A] where memory is shared
    // The name, which comes last, may have commas.
    gpus.push_back({{"index", *index}, {"name", joined({fields.begin() + 4, fields.end()})},
        {"memory_bytes", mebibytes ? Facts(*mebibytes * 1048576.0) : Facts(nullptr)},
        {"uuid", fields[1]}, {"driver", fields[2]}});
  }
  return gpus;
}

Facts parse_gpu_topology(const std::string& text) {
  Facts pairs = Facts::object();
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

Facts nvidia_smi_facts() try {
  Facts facts;
  facts["gpus"] = parse_gpu_query(output_of("nvidia-smi",
      {"--query-gpu=index,uuid,driver_version,memory.total,name", "--format=csv,noheader,nounits"},
      kSmiSeconds));
  const bool has_pairs = facts["gpus"].size() > 1;
  facts["connections"] = has_pairs ? topology({"topo", "-m"}) : Facts::object();
  facts["peer_access"] = has_pairs ? topology({"topo", "-p2p", "r"}) : Facts::object();
  return facts;
} catch (const InvalidArgument&) {
  return {{"nvidia_smi", "not in PATH"}};
} catch (const std::system_error& error) {
  return {{"nvidia_smi", error.what()}};
}

Facts scheduler_facts(const cluster::Surroundings& here) {
  return {{"found", schedulers_of(here)}, {"a_rank_here", or_refusal(as_rank, here)},
      {"a_launcher_here", or_refusal(as_launcher, here)}};
}

Facts host_facts() {
  return {{"system", system_facts()}, {"processor", processor_facts()}, {"memory", memory_facts()},
      {"limits", limit_facts()}, {"gpu", gpu_facts()}, {"network", network_facts()},
      {"scheduler", scheduler_facts(cluster::surroundings_of_this_process())}};
}

std::string field_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, name.size(), name) != 0) continue;
    if (line.find_first_not_of(" \t", name.size()) != colon) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::optional<double> bytes_of(const std::string& field) {
  const auto kibibytes = parse_number<double>(field.substr(0, field.find(' ')));
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

std::string bytes_in_words(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  char text[40];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

Facts build_facts() {
  return {{"lockstep", LOCKSTEP_VERSION}, {"libtorch", LOCKSTEP_LIBTORCH_VERSION},
      {"compiler", compiler()}, {"c++", __cplusplus}, {"cmake", LOCKSTEP_CMAKE_VERSION},
      {"build_type", LOCKSTEP_BUILD_TYPE}, {"zlib", LOCKSTEP_ZLIB_VERSION},
      {"libpng", LOCKSTEP_LIBPNG_VERSION}, {"openssl", LOCKSTEP_OPENSSL_VERSION},
      {"curl", LOCKSTEP_CURL_VERSION}, {"libarchive", LOCKSTEP_LIBARCHIVE_VERSION},
      {"tomlplusplus", LOCKSTEP_TOML_VERSION},
      {"nlohmann_json", concat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".",
                            NLOHMANN_JSON_VERSION_PATCH)}};
}

Facts environment_facts() {
  Facts facts{{"v", 1}, {"build", build_facts()}};
  facts.update(host_facts());
  facts["variables"] = variables();
  return facts;
}

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
