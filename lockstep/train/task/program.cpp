#include "lockstep/train/task/program.h"

#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

bool is_accuracy(const std::string& number) { return number == "accuracy"; }

}  // namespace

Program::Program(std::vector<std::string> numbers) : numbers_(std::move(numbers)) {
  for (const std::string& name : numbers_)
    check(is_accuracy(name) || is_free_name(name), "train: the model gives a number called ",
        printable(name), ", which the files of a run have for something else; name it otherwise");
}

std::vector<torch::Tensor> Program::tensors(const Batch& batch) {
  std::vector<torch::Tensor> all = batch.input_tensors();
  for (const BatchTensor& target : batch.targets) all.push_back(target.tensor);
  return all;
}

std::vector<std::string> Program::metrics(const std::vector<std::string>& numbers) {
  std::vector<std::string> all;
  for (const std::string& name : numbers) {
    if (is_accuracy(name)) {
      all.emplace_back("top1");
    } else {
      all.insert(all.end(), {"max:" + name, "min:" + name});
    }
  }
  return all;
}

torch::Tensor Program::target(const Batch& batch) const {
  return at::empty({batch.size(), 0}, on_host(torch::kFloat));
}

void Program::check_rows(const torch::Tensor& rows, const torch::Tensor& target) const {
  const auto columns = std::ssize(numbers_) + 2;
  check(rows.dim() == 2 && rows.size(1) == columns, "train: a model with a loss of its own gives ",
      "rows of ", columns, " numbers, not ", rows.sizes(), " for ", target.size(0), " samples");
}

// A single part keeps the bits of its loss.
torch::Tensor Program::loss(const torch::Tensor& rows, const torch::Tensor& target) const {
  check_rows(rows, target);
  if (rows.size(0) == 1) return rows[0][1];
  const torch::Tensor samples = rows.select(1, 0).detach();
  return (rows.select(1, 1) * samples).sum() / samples.sum();
}

Findings Program::measure(const torch::Tensor& rows, const torch::Tensor& target) const {
  check_rows(rows, target);
  const torch::Tensor all = rows.detach().to(torch::kDouble), samples = all.narrow(1, 0, 1);
  const torch::Tensor sums = (all.slice(1, 1) * samples).sum(0), count = samples.sum().view({1});
  return {at::cat({sums.narrow(0, 0, 1), count, count, sums.slice(0, 1)})};
}

void Program::score(const Findings& all, Evaluation& result) const {
  const auto* const sum = all.sums.const_data_ptr<double>();
  const double* own = sum + Findings::kOwn;
  for (const std::string& name : numbers_) {
    const double mean = *own++ / sum[Findings::kCounted];
    if (is_accuracy(name)) {
      result.scores.top1 = mean;
    } else {
      result.scores.more[name] = mean;
    }
  }
}

}  // namespace lockstep
