#include "lockstep/train/state/parameters_hash.h"

#include <cstdio>
#include <cstring>

#include <ATen/ops/empty.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// FNV-1a over words, with a fold: multiplication alone carries a change only upwards. Each round is
// one-to-one in the hash and in the word, so a single changed word always changes the result.
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x100000001b3u;
  return hash ^ (hash >> 32);
}

std::uint64_t hash_bytes(std::uint64_t hash, const char* bytes, std::size_t size) {
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, 8);
    hash = mixed(hash, word);
  }
  std::uint64_t rest = 0;
  if (at < size) std::memcpy(&rest, bytes + at, size - at);
  return mixed(mixed(hash, rest), size);
}

}  // namespace

std::string hexadecimal(std::uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::uint64_t parameters_hash(const std::vector<torch::Tensor>& parameters, std::uint64_t start) {
  std::uint64_t hash = start;
  for (const auto& parameter : parameters) {
    const torch::Tensor plain = parameter.detach().contiguous();
    hash = hash_bytes(hash, static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  return hash;
}

namespace {

// Each rank continues what the one before it began.
std::uint64_t hash_of_stages(
    const std::vector<torch::Tensor>& parameters, const ProcessGroup& stages) {
  const torch::Tensor running = at::empty({1}, torch::kLong);
  auto* const hash = running.mutable_data_ptr<std::int64_t>();
  *hash = static_cast<std::int64_t>(kHashOfNothing);
  for (int rank = 0; rank < stages.size(); ++rank) {
    if (rank == stages.rank())
      *hash =
          static_cast<std::int64_t>(parameters_hash(parameters, static_cast<std::uint64_t>(*hash)));
    stages.broadcast(running, rank).wait();
  }
  return static_cast<std::uint64_t>(*hash);
}

}  // namespace

std::string agreed_parameters_hash(const std::vector<torch::Tensor>& parameters,
    const ProcessGroup& world, const ProcessGroup& stages) {
  const torch::Tensor own = at::empty({1}, torch::kLong);
  own.fill_(static_cast<std::int64_t>(hash_of_stages(parameters, stages)));
  const torch::Tensor all = at::empty({world.size()}, torch::kLong);
  world.all_gather(all, own).wait();
  const auto* hashes = reinterpret_cast<const std::uint64_t*>(all.const_data_ptr<std::int64_t>());
  for (int rank = 1; rank < world.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    throw Error(concat("train: the parameters of the ranks differ: hash ", hexadecimal(hashes[0]),
        " on rank 0, ", hexadecimal(hashes[rank]), " on rank ", rank,
        "; the results of this run cannot be trusted"));
  }
  return hexadecimal(hashes[0]);
}

}  // namespace lockstep
