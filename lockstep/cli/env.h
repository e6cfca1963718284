#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/place.h"

namespace lockstep::cli {

using Facts = nlohmann::ordered_json;

/// Describes the host's system, processor, memory, limits, devices, network and scheduler. What
/// cannot be read is left out or null.
Facts host_facts();

/// Finds the value after `NAME :` in the text of /proc/cpuinfo or /proc/meminfo; empty text if
/// there is none.
std::string field_of(const std::string& text, const std::string& name);

/// Reads a value of /proc/meminfo, such as `16384 kB`; nothing if it is not one.
std::optional<double> bytes_of(const std::string& field);

/// Writes a number of bytes as people say it: `15.6 GiB`.
std::string bytes_in_words(double bytes);

/// Describes this build: versions, compiler, libraries.
Facts build_facts();

/// Describes build, host and the variables that change how fast or where ranks run: what `lockstep
/// env --json` prints and a bench keeps.
Facts environment_facts();

/// Names the schedulers whose variables a process has, and says what a rank and a launcher that are
/// started in its place understand of them.
Facts scheduler_facts(const cluster::Surroundings& here);

/// Reads what `nvidia-smi --query-gpu=index,uuid,driver_version,memory.total,name
/// --format=csv,noheader,nounits` prints: one object for each GPU. Lines that are not of that form,
/// such as its error messages, are left out.
Facts parse_gpu_query(const std::string& text);

/// Reads what `nvidia-smi topo -m` prints: how each pair of GPUs is connected, as
/// `"GPU0-GPU1": "NV12"`. Columns of network cards and of affinities are left out. What
/// `nvidia-smi topo -p2p r` prints, whether each may read the other's memory, has the same form.
Facts parse_gpu_topology(const std::string& text);

/// Says in words what connects two GPUs: `NV12` is 12 NVLinks. What is not known stays as it is.
std::string connection_in_words(const std::string& code);

/// Says in words whether two GPUs read each other's memory: `OK` is peer access.
std::string peer_access_in_words(const std::string& code);

/// Asks `nvidia-smi` of PATH, for a few seconds at most, what GPUs there are. Needs no CUDA. Where
/// it cannot say, `nvidia_smi` has the reason.
Facts nvidia_smi_facts();

/// Runs a program of PATH and returns what it prints on stdout. Throws std::system_error when it
/// cannot be started, fails, or takes longer; then it is killed.
std::string output_of(
    const std::string& program, const std::vector<std::string>& arguments, double limit_seconds);

}  // namespace lockstep::cli
