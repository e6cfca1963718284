// Random chains of layers, batch sizes, ranks, places, stages, chunks, schedules and bucket sizes:
// the serial model's gradients and parameters in 500 cases.

#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>
#include <random>

#include "tests/comm/group_factory.h"
#include "tests/parallel/pipeline/serial_reference.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"

namespace lockstep {
namespace {

constexpr int kCases = 500;
constexpr int kSteps = 2;
constexpr double kTolerance = 1e-10;

/// Draws numbers of one case.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : engine_(seed) {}
  int from(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }
  template <typename Value>
  Value one_of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(from(0, static_cast<int>(values.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

torch::nn::Sequential random_net(Draw& draw, int layers, std::int64_t& width) {
  torch::nn::Sequential net;
  for (int layer = 0; layer < layers; ++layer) {
    const int kind = draw.from(0, 5);
    if (kind == 0 || (kind == 2 && width == 1)) {  // the norm of one value is rounding alone
      net->push_back(torch::nn::Tanh());
    } else if (kind == 1) {
      net->push_back(torch::nn::ReLU());
    } else if (kind == 2) {
      net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    } else {
      const std::int64_t next = draw.from(1, 9);
      net->push_back(
          torch::nn::Linear(torch::nn::LinearOptions(width, next).bias(draw.from(0, 1) == 1)));
      width = next;
    }
  }
  // Something to train, at both ends.
  net->push_back(torch::nn::Linear(width, 3));
  width = 3;
  net->to(torch::kDouble);
  return net;
}

std::vector<int> random_balance(Draw& draw, int layers, int stages) {
  std::vector<int> balance(static_cast<std::size_t>(stages), 1);
  for (int left = layers - stages; left > 0; --left)
    ++balance[static_cast<std::size_t>(draw.from(0, stages - 1))];
  return balance;
}

struct Case {
  torch::nn::Sequential net{nullptr};
  torch::Tensor input, target;
  std::string text;
};

void train(const std::vector<torch::Tensor>& parameters, const std::function<void()>& backward) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.5));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    backward();
    optimizer.step();
  }
}

// The layers that a rank holds keep the serial net's parameters under the same names.
void expect_as(const Layers& layers, const torch::nn::Sequential& serial, const std::string& text) {
  const auto expected = serial->named_parameters();
  for (const auto& layer : layers) {
    for (const auto& parameter : layer.value().ptr()->named_parameters()) {
      const std::string name = layer.key() + "." + parameter.key();
      testing::expect_close(parameter.value(), expected[name], kTolerance, text + ": " + name);
      testing::expect_close(parameter.value().grad(), expected[name].grad(), kTolerance,
          text + ": gradient of " + name);
    }
  }
}

void try_data_parallel(Draw& draw, const Case& now, const torch::nn::Sequential& serial) {
  const int places = draw.from(1, 4);
  const auto net = testing::copy_of(now.net);
  // Forward of a Sequential is a template; a module with one forward can be divided.
  struct NetImpl : torch::nn::Cloneable<NetImpl> {
    explicit NetImpl(const torch::nn::Sequential& inner) { net = register_module("net", inner); }
    void reset() override {
      if (net) net = register_module("net", testing::copy_of(net));
    }
    torch::Tensor forward(const torch::Tensor& input) { return net->forward(input); }
    torch::nn::Sequential net{nullptr};
  };
  auto module = std::make_shared<NetImpl>(net);
  DataParallel<std::shared_ptr<NetImpl>> parallel(module, testing::places(places));
  train(module->parameters(),
      [&] { testing::mean_loss(parallel(now.input), now.target).backward(); });
  expect_as(layers_of(net), serial, concat(now.text, ", dp in ", places, " places"));
}

// Shares of a batch need not be equal: each rank counts for what it has. Some passes accumulate
// before the last averages, or reduce_accumulated() does.
void try_distributed(Draw& draw, const Case& now, const torch::nn::Sequential& serial) {
  const int ranks = draw.from(1, 4), passes = draw.from(1, 3);
  const std::vector<std::int64_t> sizes = {1, 64, 400, 4096, 1 << 20};
  auto options = DistributedDataParallelOptions()
                     .first_bucket_bytes(draw.one_of(sizes))
                     .bucket_bytes(draw.one_of(sizes))
                     .find_unused_parameters(draw.from(0, 2) == 0)
                     .static_graph(draw.from(0, 2) == 0);
  if (draw.from(0, 2) == 0) options.comm_hook(all_reduce_hook);
  const bool after_passes = draw.from(0, 2) == 0;
  const std::string text = concat(now.text, ", ddp on ", ranks, " ranks in ", passes,
      " passes, buckets of ", options.first_bucket_bytes(), " and ", options.bucket_bytes());
  testing::run_ranks(ranks, [&](const ProcessGroup& world) {
    const auto net = testing::copy_of(now.net);
    DistributedDataParallel<torch::nn::Sequential> parallel(net, world, options);
    const auto inputs = testing::share_here(now.input, world).tensor_split(passes);
    const auto targets = testing::share_here(now.target, world).tensor_split(passes);
    const auto backward = [&](const torch::Tensor& input, const torch::Tensor& target) {
      const double share =
          static_cast<double>(input.size(0) * ranks) / static_cast<double>(now.input.size(0));
      const auto output = parallel(input);
      const auto loss =
          input.size(0) > 0 ? testing::mean_loss(output, target) * share : output.sum() * 0;
      loss.backward();
    };
    train(net->parameters(), [&] {
      for (std::size_t pass = 0; pass < inputs.size(); ++pass) {
        std::optional<NoSync> accumulation;
        if (after_passes || pass + 1 < inputs.size()) accumulation.emplace(parallel.no_sync());
        backward(inputs[pass], targets[pass]);
      }
      if (after_passes) parallel.reduce_accumulated();
    });
    expect_as(layers_of(net), serial, text);
  });
}

struct Cut {
  int workers = 1, stages = 1;
  std::vector<int> balance;
  PipelineOptions options;
  std::string text;
};

Cut random_cut(Draw& draw, const Case& now) {
  const int layers = static_cast<int>(now.net->size());
  Cut cut;
  const auto kind = draw.one_of<ScheduleKind>({ScheduleKind::kSequential, ScheduleKind::kGPipe,
      ScheduleKind::k1F1B, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble});
  const bool several = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubble;
  cut.workers = draw.from(1, std::min(4, layers));
  cut.stages = several ? cut.workers * draw.from(1, layers / cut.workers) : cut.workers;
  cut.balance = random_balance(draw, layers, cut.stages);
  const auto checkpoint = draw.one_of<Checkpoint>(
      {Checkpoint::kNever, Checkpoint::kNever, Checkpoint::kExceptLast, Checkpoint::kAlways});
  const int chunks = draw.from(1, 10);
  cut.options = PipelineOptions().schedule(kind).chunks(chunks).checkpoint(checkpoint);
  cut.text = concat(", ", name_of(kind), " of ", cut.stages, " stages, ", chunks,
      " chunks, checkpoint ", name_of(checkpoint));
  return cut;
}

void try_pipeline(Draw& draw, const Case& now, const torch::nn::Sequential& serial) {
  const Cut cut = random_cut(draw, now);
  const auto net = testing::copy_of(now.net);
  Pipeline pipeline(layers_of(net), cut.balance, testing::places(cut.workers), cut.options);
  const bool inside = draw.from(0, 2) > 0;  // the loss
  train(pipeline.parameters(), [&] {
    if (inside) {
      pipeline.step(now.input, now.target, testing::mean_loss);
    } else {
      const auto output = pipeline(now.input);
      testing::mean_loss(output, now.target.to(output.device())).backward();
    }
  });
  expect_as(layers_of(net), serial, concat(now.text, cut.text, " in ", cut.workers, " places"));
}

void try_stages(Draw& draw, const Case& now, const torch::nn::Sequential& serial) {
  const Cut cut = random_cut(draw, now);
  const int replicas = now.input.size(0) % 2 == 0 ? draw.from(1, 2) : 1;
  const std::string text =
      concat(now.text, cut.text, " on ", cut.workers, " ranks, ", replicas, " replicas");
  testing::run_ranks(cut.workers * replicas, [&](const ProcessGroup& world) {
    const auto net = testing::copy_of(now.net);
    const PipelineGrid grid = make_pipeline_grid(world, cut.workers);
    PipelineStage stage(layers_of(net), cut.balance, grid.stages, cut.options, grid.replicas,
        testing::this_device());
    const auto input = testing::share_here(now.input, grid.replicas);
    const auto target = testing::share_here(now.target, grid.replicas);
    const auto parameters = stage.parameters();
    if (parameters.empty()) {
      for (int step = 0; step < kSteps; ++step) stage.step(input, target, testing::mean_loss);
    } else {
      train(parameters, [&] { stage.step(input, target, testing::mean_loss); });
    }
    expect_as(stage.layers(), serial, text);
  });
}

class RandomModules : public ::testing::TestWithParam<int> {};

// In ten parts, so that a failure is found sooner.
TEST_P(RandomModules, TrainAsTheSerialModel) {
  for (int index = GetParam(); index < kCases; index += 10) {
    Draw draw(static_cast<std::uint32_t>(index));
    torch::manual_seed(static_cast<std::uint64_t>(index));
    std::int64_t width = draw.from(1, 6);
    const std::int64_t inputs = width;
    Case now;
    now.net = random_net(draw, draw.from(0, 7), width);
    const int batch = draw.from(1, 13);
    now.input = torch::randn({batch, inputs}, torch::kDouble);
    now.target = torch::randn({batch, width}, torch::kDouble);
    now.text = concat("case ", index, ", batch ", batch, ", ", now.net->size(), " layers");
    // Other backends and emulated streams take up to ten times as long.
    const bool is_over_backend = std::getenv("LOCKSTEP_TEST_BACKEND") != nullptr;
    const bool is_quick = !testing::on_devices() && !is_over_backend;
    const bool is_distributed = index % 2 == 0 || is_quick, is_staged = index % 3 == 1;
    if (is_over_backend && !is_distributed && !is_staged) continue;  // nothing has a group
    auto serial = testing::copy_of(now.net);
    train(serial->parameters(),
        [&] { testing::mean_loss(serial->forward(now.input), now.target).backward(); });
    if (is_distributed) try_distributed(draw, now, serial);
    switch (index % 3) {
      case 0:
        if (!is_over_backend) try_pipeline(draw, now, serial);  // of one process, without a group
        break;
      case 1:
        try_stages(draw, now, serial);
        break;
      default:
        if (!is_over_backend) try_data_parallel(draw, now, serial);
    }
    ASSERT_FALSE(HasFailure()) << now.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomModules, ::testing::Range(0, 10));

}  // namespace
}  // namespace lockstep
