#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// The settings of how a language model goes on; the defaults are nanoGPT's.
struct SamplingSettings {
  std::int64_t tokens = 200;
  double temperature = 0.8;                 ///< of the scores; 0: always the likeliest token
  std::optional<std::int64_t> top_k = 200;  ///< likeliest tokens to draw from; absent: all
  std::int64_t seed = 42;
};

/// Draws a token by its scores [vocabulary].
std::int64_t drawn_token(
    const torch::Tensor& scores, const SamplingSettings& settings, at::Generator& generator);

/// Lets a model in evaluation go on with tokens, of which it sees the last `context`, and shows
/// each new one. Throws InvalidArgument if there are none to begin with, or the model does not give
/// scores [1, T, vocabulary].
void sample_tokens(nn::Model& model, std::vector<std::int64_t> tokens, std::int64_t context,
    const SamplingSettings& settings, const std::function<void(std::int64_t)>& show);

/// Returns the tokens of a prompt for a model that learned from such data: the bytes of a text, or
/// numbers with spaces between them. Throws InvalidArgument for another prompt, an empty one, or
/// data that are no tokens.
std::vector<std::int64_t> prompt_tokens(const DataSource& data, const std::string& prompt);

/// Returns a token as it is shown: a byte of a text, `?` for a control character that may mislead a
/// terminal; or a number and a space.
std::string shown_token(const DataSource& data, std::int64_t token);

/// Makes the model of a run on a device, with the weights of a file, in evaluation. The data need
/// not be there. Throws DataError for weights of another model.
nn::Model trained_model(
    const TrainOptions& options, const std::string& weights, torch::Device device);

}  // namespace lockstep
