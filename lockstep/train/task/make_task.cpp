#include "lockstep/train/task/make_task.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/task_model.h"
#include "lockstep/train/task/class_of_each.h"
#include "lockstep/train/task/classification.h"
#include "lockstep/train/task/element_task.h"
#include "lockstep/train/task/labels.h"
#include "lockstep/train/task/program.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

/// The flags' words that a task knows.
struct TaskWords {
  TaskKind kind;
  Words losses;   ///< the first is the usual one; a classification has those of plugins too
  Words metrics;  ///< of --eval-metric
};

const TaskWords& words_of(TaskKind kind) {
  using Kind = TaskKind;
  static const std::vector<TaskWords> kAll = {
      {Kind::kClassification, nn::loss_names(), {"loss", "top1", "top5"}},
      {Kind::kTokens, {nn::kCrossEntropy}, {"loss", "perplexity", "bits-per-byte"}},
      {Kind::kRegression, {"mse", "l1", "huber"}, {"loss", "mae", "rmse", "r2"}},
      {Kind::kLabels, {"bce"}, {"loss", "micro-f1", "macro-f1", "average-precision"}},
      {Kind::kSegmentation, {nn::kCrossEntropy}, {"loss", "mean-iou", "pixel-accuracy"}},
      {Kind::kReconstruction, {"mse", "l1", "bce"}, {"loss", "mae", "rmse"}},
      {Kind::kProgram, {"model"}, {"loss"}}};
  return *std::ranges::find(kAll, kind, &TaskWords::kind);
}

bool has(const Words& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

bool has_classes(TaskKind kind) {
  return kind == TaskKind::kClassification || kind == TaskKind::kTokens ||
         kind == TaskKind::kSegmentation;
}

// By what a target looks like.
TaskKind kind_of(const data::TensorForm& target) {
  if (at::isFloatingType(target.type)) return TaskKind::kRegression;
  if (target.sizes.empty()) return TaskKind::kClassification;
  if (target.sizes.size() > 1) return TaskKind::kSegmentation;
  return target.type == torch::kLong ? TaskKind::kTokens : TaskKind::kLabels;
}

// Nothing where several targets say nothing.
std::optional<TaskKind> usual_kind(const std::vector<data::TensorForm>& targets) {
  if (targets.empty()) return TaskKind::kReconstruction;
  return targets.size() == 1 ? std::optional(kind_of(targets.front())) : std::nullopt;
}

bool fits(const data::TensorForm& target, TaskKind kind) {
  const bool is_whole = !at::isFloatingType(target.type);
  switch (kind) {
    case TaskKind::kClassification:
      return is_whole && target.sizes.empty();
    case TaskKind::kTokens:
      return is_whole;
    case TaskKind::kSegmentation:
      return is_whole && !target.sizes.empty();
    case TaskKind::kLabels:
      return !target.sizes.empty();
    case TaskKind::kRegression:
    case TaskKind::kReconstruction:
    case TaskKind::kProgram:
      break;
  }
  return true;
}

std::string text_of_all(const std::vector<data::TensorForm>& targets) {
  Words texts;
  for (const data::TensorForm& target : targets) texts.push_back(target.text());
  return texts.empty() ? "none" : joined(texts);
}

std::string text_of(const TrainOptions& options, TaskKind kind) {
  return options.plugin_task.empty() ? name_of(kind) : options.plugin_task;
}

// Beside the metrics of the task those of a program's own numbers.
void check_flags(const TrainOptions& options, TaskKind kind, const Words& own_metrics) {
  const TaskWords& words = words_of(kind);
  const std::string& metric = options.eval_metric;
  Words metrics = words.metrics;
  metrics.insert(metrics.end(), own_metrics.begin(), own_metrics.end());
  check(has(metrics, metric), "train: --eval-metric ", metric, ": the task ",
      text_of(options, kind), " measures ", joined(metrics));
  check(metric != "bits-per-byte" || options.data.name == "text", "train: --eval-metric ", metric,
      " is for --data text:FILE, whose tokens are bytes");
  check(options.smoothing == 0 || has(words.losses, nn::kCrossEntropy),
      "train: --smoothing is for cross entropy, and the task ", name_of(kind), " has none");
  check(kind == TaskKind::kClassification || options.loading.bad_images == BadImages::kFail,
      "train: --bad-images skip is for classifications, not for the task ", name_of(kind));
}

ElementLoss element_loss_of(const std::string& name) {
  const auto all = names_of(ElementLoss{});
  return std::ranges::find(all, name, &EnumName<ElementLoss>::name)->value;
}

}  // namespace

TaskKind task_kind(const TrainOptions& options, const std::vector<data::TensorForm>& targets) {
  if (options.task == TaskKind::kReconstruction || options.task == TaskKind::kProgram)
    return *options.task;
  if (targets.empty() && !options.task) return TaskKind::kReconstruction;
  check(targets.size() == 1, "train: a task has one target, and a sample of ", options.data.name,
      " has ", targets.size(), ": ", text_of_all(targets));
  const data::TensorForm& target = targets.front();
  const TaskKind kind = options.task.value_or(kind_of(target));
  check(fits(target, kind), "train: --task ", name_of(kind), " is not for the target of ",
      options.data.name, ", ", target.text(), "; that may be of ", name_of(kind_of(target)));
  return kind;
}

std::string loss_name(const TrainOptions& options, TaskKind kind) {
  const bool is_ours = options.plugin_task.empty();
  check(is_ours || options.loss.empty(), "train: --loss ", options.loss, ": the task ",
      options.plugin_task, " has a loss of its own");
  if (!is_ours) return options.plugin_task;
  const Words& known = words_of(kind).losses;
  if (options.loss.empty()) return known.front();
  // A classification knows the losses of plugins, and refuses others itself.
  check(kind == TaskKind::kClassification || has(known, options.loss), "train: --loss ",
      options.loss, " is not for the task ", name_of(kind), "; it has ", joined(known));
  return options.loss;
}

void forget_usual_words(TrainOptions& options, const std::vector<data::TensorForm>& targets) {
  const TaskKind kind = task_kind(options, targets);
  if (loss_name(options, kind) == words_of(kind).losses.front()) options.loss.clear();
  if (usual_kind(targets) == kind) options.task.reset();
}

std::int64_t task_outputs(const TrainOptions& options, const data::Samples& set) {
  const auto targets = set.targets(), inputs = set.inputs();
  const TaskKind kind = task_kind(options, targets);
  // What the net gives is between it and the task.
  if (!options.plugin_task.empty())
    return options.classes.value_or(std::max<std::int64_t>(set.classes(), 1));
  if (!has_classes(kind)) {
    check(!options.classes, "train: --num-classes is for classes, and the task ", name_of(kind),
        " has none; classes are whole numbers, one a sample, and the targets are ",
        text_of_all(targets));
    if (kind == TaskKind::kProgram) return 1;
    if (kind != TaskKind::kReconstruction) return targets.front().elements();
    return inputs.empty() ? set.shape().elements() : inputs.front().elements();
  }
  // An exported net has its outputs already; check_task() compares them.
  if (nn::is_exported(options.model) && kind != TaskKind::kClassification) return 1;
  const std::int64_t needed = set.classes(), asked = options.classes.value_or(needed);
  check(asked >= needed, "train: --num-classes ", asked, " is less than the ", needed,
      " classes of ", options.data.name);
  check(asked > 0, "train: ", options.data.name,
      " does not say how many classes there are; give --num-classes, or another --task");
  return asked;
}

nn::Model make_net(const TrainOptions& options, const SampleForm& form, bool is_filled_later) {
  check(options.dropout == 0 || nn::net_needs(options.model).context > 0,
      "train: --dropout is for our language models; the dropout of ", options.model,
      " cannot be set");
  nn::Model net = nn::make_model(options.model, form.outputs,
      {.dropout = options.dropout, .is_filled_later = is_filled_later});
  if (options.plugin_task.empty()) return net;
  return nn::with_task(options.plugin_task, net, std::max<std::size_t>(1, form.inputs.size()));
}

TaskPointer make_task(const TrainOptions& options, const SampleForm& form, nn::Model& model) {
  const TaskKind kind = task_kind(options, form.targets);
  const std::string loss = loss_name(options, kind);
  // A plugin's function names its numbers with the first result.
  if (!options.plugin_task.empty()) try_model(options, form, Program::tensors, model);
  const auto numbers = model->numbers();
  check(kind == TaskKind::kProgram || !numbers, "train: ", options.model,
      " computes its loss itself; give --task program");
  check_flags(options, kind, Program::metrics(numbers.value_or(Words())));
  const bool has_r2 = kind != TaskKind::kRegression ||
                      form.targets.front().elements() <= Regression::kMostExplained;
  check(options.eval_metric != "r2" || has_r2, "train: --eval-metric r2 is for targets of at most ",
      Regression::kMostExplained, " numbers; take rmse");
  switch (kind) {
    case TaskKind::kClassification:
      return std::make_shared<Classification>(loss, options.smoothing);
    case TaskKind::kTokens:
      return std::make_shared<Tokens>(options.smoothing, options.data.name == "text",
          /*gives_losses=*/nn::net_needs(options.model).context > 0);
    case TaskKind::kSegmentation:
      return std::make_shared<Segmentation>(options.smoothing);
    case TaskKind::kLabels:
      return std::make_shared<Labels>();
    case TaskKind::kRegression:
      return std::make_shared<Regression>(element_loss_of(loss));
    case TaskKind::kReconstruction:
      return std::make_shared<Reconstruction>(element_loss_of(loss));
    case TaskKind::kProgram:
      break;
  }
  check(numbers.has_value(),
      "train: --task program is for a model that returns its own `loss`, a number, by that name, "
      "and ",
      options.model, " does not");
  return std::make_shared<Program>(*numbers);
}

}  // namespace lockstep
