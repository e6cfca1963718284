#include "lockstep/train/profile/layer_names.h"

namespace lockstep {
namespace {

const std::string& no_layer() {
  static const std::string kNone;
  return kNone;
}

const std::string& layer_around(const std::vector<PlacedSpan>& spans, std::size_t index) {
  const Span& span = *spans[index].span;
  if (!span.layer.empty()) return span.layer;
  if (span.activity == Activity::kLayer) return span.name;
  return spans[index].parent ? layer_around(spans, *spans[index].parent) : no_layer();
}

}  // namespace

// The inner ones come later and have the last word.
void LayerNames::learn(const SpanLane& lane, const std::vector<PlacedSpan>& spans) {
  for (std::size_t index = 0; index < spans.size(); ++index) {
    const Span& span = *spans[index].span;
    if (span.activity != Activity::kLayer && span.activity != Activity::kOperator) continue;
    const std::string& layer = layer_around(spans, index);
    if (layer.empty()) continue;
    for (std::uint64_t node = span.first_node; node < span.end_node; ++node)
      makers_.insert_or_assign({lane.number, node}, layer);
  }
}

const std::string& LayerNames::of(const std::vector<PlacedSpan>& spans, std::size_t index) const {
  const Span& span = *spans[index].span;
  if (span.activity == Activity::kGradientNode) {
    const auto found = makers_.find({span.maker, span.first_node});
    return found == makers_.end() ? no_layer() : found->second;
  }
  return layer_around(spans, index);
}

}  // namespace lockstep
