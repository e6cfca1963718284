#pragma once

#include <filesystem>
#include <string>

#include "lockstep/record/evaluation_result.h"
#include "lockstep/report/page/page.h"

namespace lockstep {

/// Writes scores, classes and confusion for a terminal. Where there are many classes, the hardest
/// of them and the most frequent mistakes.
std::string evaluation_text(const EvaluationResult& result);

/// Writes everything but the pictures as one JSON object on one line; what is not finite is `null`
/// and named in `nonfinite`.
std::string evaluation_json(const EvaluationResult& result);

/// Returns it as a page: scores, classes, the confusion as a heat map, the worst samples as
/// pictures.
page::Page page_of_evaluation(const EvaluationResult& result);

/// Writes that page as one HTML file that needs neither network nor script. Throws
/// std::system_error if it cannot be written.
void write_evaluation_page(const EvaluationResult& result, const std::filesystem::path& file);

/// Returns the weights for people: their file, and what is known of them.
std::string weights_text(const WeightsSource& weights);

}  // namespace lockstep
