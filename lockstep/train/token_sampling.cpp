#include "lockstep/train/token_sampling.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {
namespace {

constexpr std::int64_t kBytes = 256;

bool is_text(const DataSource& data) { return data.name == "text"; }

}  // namespace

std::int64_t drawn_token(
    const torch::Tensor& scores, const SamplingSettings& settings, at::Generator& generator) {
  const torch::Tensor own = scores.detach().cpu().to(torch::kDouble);
  if (settings.temperature == 0) return own.argmax().item<std::int64_t>();
  const std::int64_t most = std::min(own.numel(), settings.top_k.value_or(own.numel()));
  const auto [kept, tokens] = own.topk(most);
  const torch::Tensor shares = at::softmax((kept - kept[0]) / settings.temperature, 0);
  return tokens[at::multinomial(shares, 1, false, generator)[0]].item<std::int64_t>();
}

void sample_tokens(nn::Model& model, std::vector<std::int64_t> tokens, std::int64_t context,
    const SamplingSettings& settings, const std::function<void(std::int64_t)>& show) {
  check(!tokens.empty(), "sample: there is nothing to go on with; give a --prompt");
  const at::NoGradGuard no_gradients;
  const torch::Device device = model->parameters().front().device();
  at::Generator generator =
      at::detail::createCPUGenerator(static_cast<std::uint64_t>(settings.seed));
  for (std::int64_t i = 0; i < settings.tokens; ++i) {
    const auto first = tokens.end() - std::min<std::int64_t>(std::ssize(tokens), context);
    const torch::Tensor seen =
        torch::tensor(std::vector<std::int64_t>(first, tokens.end()), torch::kLong);
    const torch::Tensor scores = model->MultiInputModule::forward({seen.unsqueeze(0).to(device)});
    check(scores.dim() == 3 && scores.size(1) == seen.size(0), "sample: the model gives ",
        scores.sizes(), " for ", seen.size(0), " tokens, and not scores [1, T, vocabulary]");
    tokens.push_back(drawn_token(scores[0][-1], settings, generator));
    show(tokens.back());
  }
}

std::vector<std::int64_t> prompt_tokens(const DataSource& data, const std::string& prompt) {
  check(is_text(data) || data.name == "tokens", "sample: the run learned from --data ", data.name,
      ", which are no tokens; sample from one of --data text:PATH or tokens:PATH");
  std::vector<std::int64_t> tokens;
  if (is_text(data)) {
    for (const char letter : prompt) tokens.push_back(static_cast<unsigned char>(letter));
  } else {
    std::istringstream words(prompt);
    for (std::string word; words >> word;) {
      const auto token = parse_number<std::int64_t>(word);
      check(token && *token >= 0,
          "sample: --prompt of a run with --data tokens has the numbers of tokens, such as '464 "
          "2068', not ",
          printable(prompt));
      tokens.push_back(*token);
    }
  }
  check(!tokens.empty(), "sample: --prompt is empty");
  return tokens;
}

std::string shown_token(const DataSource& data, std::int64_t token) {
  if (!is_text(data)) return concat(token, " ");
  const auto byte = static_cast<unsigned char>(token);
  const bool misleads = std::iscntrl(byte) != 0 && byte != '\n' && byte != '\t';
  return {misleads ? '?' : static_cast<char>(byte)};
}

nn::Model trained_model(
    const TrainOptions& options, const std::string& weights, torch::Device device) {
  check(options.plugin_task.empty(), "sample: the run learned the task ", options.plugin_task,
      " of a plugin, which gives no scores of tokens");
  nn::Model model = make_net(options, {.image = {}, .outputs = options.classes.value_or(kBytes)});
  nn::load_weights(*model, weights);
  model->to(device);
  model->eval();
  return model;
}

}  // namespace lockstep
