#include "lockstep/train/strategy/task.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::string sample_text(const Task& task) {
  if (task.inputs.empty()) return "is one tensor, an image";
  std::vector<std::string> inputs;
  for (const data::InputForm& input : task.inputs) inputs.push_back(input.text());
  return concat("has ", inputs.size(), ": ", joined(inputs));
}

}  // namespace

Task task_of(const data::Samples& set, std::int64_t classes) {
  const data::ImageShape shape = set.shape();
  return {{shape.channels, shape.height, shape.width}, classes, set.inputs()};
}

void check_inputs(
    const TrainOptions& options, const Layout& layout, const Task& task, const nn::Model& model) {
  const std::size_t given = std::max<std::size_t>(1, task.inputs.size());
  const std::vector<std::size_t> taken = model->takes();
  std::vector<std::string> counts;
  for (const std::size_t count : taken) counts.push_back(std::to_string(count));
  check(std::ranges::find(taken, given) != taken.end(), "train: ", options.model, " takes ",
      joined(counts, " or "), counts.back() == "1" ? " tensor" : " tensors", ", but a sample of ",
      options.data.name, " ", sample_text(task));
  check(layout.stages == 1 || given == 1, "train: --parallel ", name_of(options.parallel),
      " hands one tensor from stage to stage, but a sample of ", options.data.name, " ",
      sample_text(task), "; take serial, dp or ddp");
}

}  // namespace lockstep
