#include "bench/collectives/operands.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr int kRoot = 0;
constexpr std::int64_t kPeriod = 61;  // no power of two, as the borders of pieces and chunks are

// Sums of it over any number of ranks that one can start stay far below 2^24.
float value_of(int rank, std::int64_t index) { return static_cast<float>(index % kPeriod + rank); }

float sum_of(int ranks, std::int64_t index) {
  const std::int64_t sum_of_ranks = ranks * (ranks - 1) / 2;
  return static_cast<float>(ranks * (index % kPeriod) + sum_of_ranks);
}

torch::Tensor make(const ProcessGroup& group, std::int64_t elements, bool group_memory) {
  if (group_memory) return group.empty(elements, torch::kFloat);
  return torch::empty({elements}, torch::kFloat);
}

}  // namespace

Operands::Operands(Collective collective, ProcessGroup group, std::int64_t bytes, bool group_memory)
    : collective_(collective), group_(std::move(group)) {
  const auto elements = bytes / static_cast<std::int64_t>(sizeof(float));
  const auto part = elements / group_.size();
  const bool gathers = collective == Collective::kAllGather;
  input_ = make(group_, gathers ? part : elements, group_memory);
  if (gathers || collective == Collective::kAllToAll) {
    output_ = make(group_, elements, group_memory);
  } else if (collective == Collective::kReduceScatter) {
    output_ = make(group_, part, group_memory);
  }
  clear();
}

std::int64_t Operands::elements() const {
  return std::max(input_.numel(), output_.defined() ? output_.numel() : 0);
}

void Operands::clear() const {
  input_.zero_();
  if (output_.defined()) output_.zero_();
}

void Operands::run() const {
  switch (collective_) {
    case Collective::kAllReduce:
      return group_.all_reduce(input_).wait();
    case Collective::kReduce:
      return group_.reduce(input_, kRoot).wait();
    case Collective::kBroadcast:
      return group_.broadcast(input_, kRoot).wait();
    case Collective::kAllGather:
      return group_.all_gather(output_, input_).wait();
    case Collective::kReduceScatter:
      return group_.reduce_scatter(output_, input_).wait();
    case Collective::kAllToAll:
      return group_.all_to_all(output_, input_).wait();
  }
}

float Operands::expected(std::int64_t index) const {
  const int rank = group_.rank();
  switch (collective_) {
    case Collective::kAllReduce:
      return sum_of(group_.size(), index);
    case Collective::kReduce:
      return rank == kRoot ? sum_of(group_.size(), index) : value_of(rank, index);
    case Collective::kBroadcast:
      return value_of(kRoot, index);
    case Collective::kAllGather:
      return value_of(static_cast<int>(index / piece()), index % piece());
    case Collective::kReduceScatter:
      return sum_of(group_.size(), rank * piece() + index);
    case Collective::kAllToAll:
      return value_of(static_cast<int>(index / piece()), rank * piece() + index % piece());
  }
  throw std::logic_error("a collective without a result");
}

void Operands::check() const {
  float* const values = input_.data_ptr<float>();
  for (std::int64_t i = 0; i < input_.numel(); ++i) values[i] = value_of(group_.rank(), i);
  run();
  const float* const results = result().data_ptr<float>();
  for (std::int64_t i = 0; i < result().numel(); ++i) {
    if (results[i] == expected(i)) continue;
    throw Error(concat("collectives: a wrong result of ", name_of(collective_), " over ",
        group_.backend_name(), ", message of ",
        elements() * static_cast<std::int64_t>(sizeof(float)), " bytes, rank ", group_.rank(),
        ": element ", i, " is ", results[i], ", not ", expected(i)));
  }
  clear();
}

}  // namespace lockstep::bench
