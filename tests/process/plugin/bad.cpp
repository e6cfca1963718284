// Nets, sets, losses and tasks that cannot be trained, each in its own way.

#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

#include <torch/nn/modules/conv.h>

#include "lockstep/nn/models/plugin.h"
#include "lockstep/nn/models/plugin_tensors.h"

namespace {

struct WrongShapeImpl : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::ones({3, 28 * 28}));
  torch::Tensor forward(const torch::Tensor& images) {
    return images.flatten(1).matmul(weight.t());
  }
};

struct NotANumberImpl : torch::nn::Module {
  explicit NotANumberImpl(std::int64_t classes) {
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    weight = register_parameter("weight", torch::full({classes, 28 * 28}, kNaN));
  }
  torch::Tensor weight;
  torch::Tensor forward(const torch::Tensor& images) {
    return images.flatten(1).matmul(weight.t());
  }
};

// As many do behind convolutions.
struct ViewsImpl : torch::nn::Module {
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(1, 10, 5));
  torch::Tensor forward(const torch::Tensor& images) {
    return conv(images).view({-1, 10 * 24 * 24}).slice(1, 0, 10);
  }
};

std::shared_ptr<WrongShapeImpl> thrown(std::int64_t) {
  throw std::runtime_error("no weights here");
}
std::shared_ptr<WrongShapeImpl> number_thrown(std::int64_t) { throw 3; }
std::shared_ptr<WrongShapeImpl> empty(std::int64_t) { return nullptr; }

lockstep::nn::PluginParts ten_samples(std::int64_t label) {
  const lockstep::nn::PluginSet set{.size = 10,
      .classes = 10,
      .shape = {1, 28, 28},
      .label = [label](std::int64_t) { return label; },
      .read = [](std::int64_t, std::span<float>) {}};
  return {.train = set, .test = set};
}

// Nets of two inputs that do with them what LibTorch refuses.
struct TwoImpl : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::ones({3, 2}));
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& mask) {
    return ids.matmul(weight) + mask.sum();
  }
};
struct NarrowImpl : TwoImpl {
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& mask) {
    return mask.slice(1, 1).matmul(weight) + ids.sum();
  }
};
struct ThreeImpl : TwoImpl {
  torch::Tensor forward(
      const torch::Tensor& ids, const torch::Tensor& mask, const torch::Tensor& more) {
    return TwoImpl::forward(ids, mask) + more;
  }
};

using lockstep::nn::PluginSample;
using lockstep::nn::PluginSet;

// Changes a set into one that is not whole; by the folder's name.
const std::map<std::string, std::function<void(PluginSet&)>>& spoilers() {
  static const std::map<std::string, std::function<void(PluginSet&)>> kAll{{"", [](PluginSet&) {}},
      {"nameless", [](PluginSet& set) { set.inputs[1].name = ""; }},
      {"alike", [](PluginSet& set) { set.inputs[1].name = "ids"; }},
      {"half", [](PluginSet& set) { set.inputs[1].type = torch::kHalf; }},
      {"hollow",
          [](PluginSet& set) {
            set.inputs[1].shape = {3, 0};
          }},
      {"vast",
          [](PluginSet& set) {
            set.inputs[1].shape = {1L << 31, 1L << 31, 1L << 31};
          }},
      {"many", [](PluginSet& set) { set.inputs.resize(9, set.inputs[0]); }},
      {"silent", [](PluginSet& set) { set.read_inputs = {}; }},
      {"shaped",
          [](PluginSet& set) {
            set.shape = {1, 1, 6};
          }},
      {"floats",
          [](PluginSet& set) {
            set.read_inputs = [](std::int64_t, const PluginSample& sample) { sample.floats(0); };
          }},
      {"third",
          [](PluginSet& set) {
            set.read_inputs = [](std::int64_t, const PluginSample& sample) { sample.floats(2); };
          }},
      {"other-test", [](PluginSet& set) { set.inputs[1].type = torch::kLong; }}};
  return kAll;
}

lockstep::nn::PluginParts two_inputs(const std::string& fault) {
  const auto set = lockstep::nn::set_of(
      {{"ids", torch::arange(30).view({10, 3})}, {"mask", torch::ones({10, 3})}},
      torch::arange(10) % 2);
  lockstep::nn::PluginParts parts{.train = set, .test = set};
  spoilers().at(fault)(fault == "other-test" ? parts.test : parts.train);
  return parts;
}

torch::Tensor loss_thrown(const torch::Tensor&, const torch::Tensor&) {
  throw std::runtime_error("no loss here");
}
torch::Tensor number_instead(const torch::Tensor&, const torch::Tensor&) { throw 3; }
torch::Tensor undefined(const torch::Tensor&, const torch::Tensor&) { return {}; }
torch::Tensor of_each(const torch::Tensor& scores, const torch::Tensor&) { return scores.sum(1); }
torch::Tensor detached(const torch::Tensor& scores, const torch::Tensor&) {
  return scores.detach().sum();
}
torch::Tensor not_a_number(const torch::Tensor& scores, const torch::Tensor&) {
  return scores.sum() * std::numeric_limits<double>::quiet_NaN();
}

using lockstep::nn::TaskBatch, lockstep::nn::TaskNet, lockstep::nn::TaskResult;

TaskResult task_thrown(const TaskNet&, const TaskBatch&) {
  throw std::runtime_error("no task here");
}
TaskResult misfitting(const TaskNet& net, const TaskBatch& batch) {
  return {.loss = net(batch.input(), batch.input()).sum()};
}
TaskResult of_each_loss(const TaskNet& net, const TaskBatch& batch) {
  return {.loss = net(batch.input()).sum(1)};
}
TaskResult of_each_number(const TaskNet& net, const TaskBatch& batch) {
  return {.loss = net(batch.input()).sum(), .numbers = {{"each", net(batch.input()).sum(1)}}};
}
TaskResult taken_number(const TaskNet& net, const TaskBatch& batch) {
  return {.loss = net(batch.input()).sum(), .numbers = {{"step", net(batch.input()).sum()}}};
}
TaskResult without_gradient(const TaskNet& net, const TaskBatch& batch) {
  return {.loss = net(batch.input()).sum().detach()};
}
// Of two samples, as are tried before the first step, and of others.
TaskResult changing(const TaskNet& net, const TaskBatch& batch) {
  const char* name = batch.input().size(0) == 2 ? "of-two" : "of-more";
  return {.loss = net(batch.input()).sum(), .numbers = {{name, net(batch.input()).sum()}}};
}
TaskResult of_two(TwoImpl& net, const TaskBatch& batch) {
  return {.loss = net.forward(batch.input(), batch.input()).sum()};
}

}  // namespace

LOCKSTEP_DATA("no-class", [](const std::string&) { return ten_samples(10); })
LOCKSTEP_DATA("no-samples", [](const std::string&) { return lockstep::nn::PluginParts(); })
LOCKSTEP_DATA("two", two_inputs)
LOCKSTEP_MODEL("two", [](std::int64_t) { return std::make_shared<TwoImpl>(); })
LOCKSTEP_MODEL("narrow", [](std::int64_t) { return std::make_shared<NarrowImpl>(); })
LOCKSTEP_MODEL("three", [](std::int64_t) { return std::make_shared<ThreeImpl>(); })
LOCKSTEP_MODEL("views", [](std::int64_t) { return std::make_shared<ViewsImpl>(); })
LOCKSTEP_MODEL("throws", thrown)
LOCKSTEP_MODEL("throws-a-number", number_thrown)
LOCKSTEP_MODEL("empty", empty)
LOCKSTEP_MODEL("wrong-shape", [](std::int64_t) { return std::make_shared<WrongShapeImpl>(); })
LOCKSTEP_MODEL("not-a-number", [](std::int64_t n) { return std::make_shared<NotANumberImpl>(n); })
LOCKSTEP_LOSS("throws", loss_thrown)
LOCKSTEP_LOSS("throws-a-number", number_instead)
LOCKSTEP_LOSS("undefined", undefined)
LOCKSTEP_LOSS("of-each", of_each)
LOCKSTEP_LOSS("detached", detached)
LOCKSTEP_LOSS("not-a-number", not_a_number)
LOCKSTEP_TASK("throws", task_thrown)
LOCKSTEP_TASK("misfitting", misfitting)
LOCKSTEP_TASK("loss-of-each", of_each_loss)
LOCKSTEP_TASK("number-of-each", of_each_number)
LOCKSTEP_TASK("taken-number", taken_number)
LOCKSTEP_TASK("without-gradient", without_gradient)
LOCKSTEP_TASK("changing", changing)
LOCKSTEP_TASK("of-two", of_two)
