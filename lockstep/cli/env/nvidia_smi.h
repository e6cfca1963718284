#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Reads what `nvidia-smi --query-gpu=index,uuid,driver_version,memory.total,name
/// --format=csv,noheader,nounits` prints: one object for each GPU. Lines that are not of that form,
/// such as its error messages, are left out.
nlohmann::ordered_json parse_gpu_query(const std::string& text);

/// Reads what `nvidia-smi topo -m` prints: how each pair of GPUs is connected, as
/// `"GPU0-GPU1": "NV12"`. Columns of network cards and of affinities are left out. What
/// `nvidia-smi topo -p2p r` prints, whether each may read the other's memory, has the same form.
nlohmann::ordered_json parse_gpu_topology(const std::string& text);

/// Says in words what connects two GPUs: `NV12` is 12 NVLinks. What is not known stays as it is.
std::string connection_in_words(const std::string& code);

/// Says in words whether two GPUs read each other's memory: `OK` is peer access.
std::string peer_access_in_words(const std::string& code);

/// Asks `nvidia-smi` of PATH, for a few seconds at most, what GPUs there are. Needs no CUDA. Where
/// it cannot say, `nvidia_smi` has the reason.
nlohmann::ordered_json nvidia_smi_facts();

/// Runs a program of PATH and returns what it prints on stdout. Throws std::system_error when it
/// cannot be started, fails, or takes longer; then it is killed.
std::string output_of(
    const std::string& program, const std::vector<std::string>& arguments, double limit_seconds);

}  // namespace lockstep::cli
