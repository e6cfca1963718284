#include "lockstep/formats/weights/tensor_parts.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/formats/weights/mutation.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep {
namespace {

using testing::Dice;
using ::testing::HasSubstr;
using Shape = std::vector<std::int64_t>;

struct TextSink final : ByteSink {
  std::string text;

 private:
  void put(std::span<const std::uint8_t> bytes) override {
    text.append(bytes.begin(), bytes.end());
  }
};

/// A tensor with the bytes 0, 1, 2, ... of int16 elements.
struct Whole {
  std::string name;
  Shape shape;
  std::vector<std::uint8_t> bytes;

  Whole(std::string tensor_name, Shape sizes, std::uint8_t first)
      : name(std::move(tensor_name)), shape(std::move(sizes)) {
    bytes.resize(*tensor_bytes(ElementType::kInt16, shape));
    std::iota(bytes.begin(), bytes.end(), first);
  }

  std::int64_t elements() const { return std::ssize(bytes) / 2; }

  /// Lays the elements out in another order of the dimensions.
  void reorder(const Shape& order) {
    std::vector<std::uint8_t> ordered(bytes.size());
    Shape strides(shape.size(), 1), place(shape.size(), 0);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    for (std::int64_t element = 0; element < elements(); ++element) {
      std::int64_t rest = element, from = 0;
      for (std::size_t i = order.size(); i-- > 0;) {
        const auto dimension = static_cast<std::size_t>(order[i]);
        from += rest % shape[dimension] * strides[dimension];
        rest /= shape[dimension];
      }
      std::copy_n(bytes.begin() + 2 * from, 2, ordered.begin() + 2 * element);
    }
    bytes = ordered;
  }

  TensorEntry entry() const { return {name, ElementType::kInt16, shape, bytes}; }
  TensorEntry part(std::int64_t begin, std::int64_t end) const {
    const auto first = static_cast<std::size_t>(2 * begin);
    return {name, ElementType::kInt16, {end - begin},
        std::span(bytes).subspan(first, static_cast<std::size_t>(2 * (end - begin)))};
  }
};

/// Files in memory, as writers of parts make them.
class Files {
 public:
  void add(const std::vector<TensorEntry>& entries, const TensorRanges& ranges) {
    add_with(entries, ranges.empty() ? "" : to_json(ranges));
  }
  void add_with(const std::vector<TensorEntry>& entries, const std::string& parts) {
    std::map<std::string, std::string> metadata;
    if (!parts.empty()) metadata[kTensorParts] = parts;
    auto& sink = sinks_.emplace_back(std::make_unique<TextSink>());
    write_safetensors(*sink, entries, metadata);
    const auto* const data = reinterpret_cast<const std::uint8_t*>(sink->text.data());
    const std::string name = concat("file", sinks_.size());
    opened_.push_back(
        std::make_unique<TensorFile>(parse_safetensors({data, sink->text.size()}, name)));
    named_.push_back({name, opened_.back().get()});
  }
  std::vector<JoinedTensor> joined() const { return join_parts(named_); }

 private:
  std::vector<std::unique_ptr<TextSink>> sinks_;
  std::vector<std::unique_ptr<TensorFile>> opened_;
  std::vector<NamedTensorFile> named_;
};

std::vector<std::uint8_t> bytes_of(
    const JoinedTensor& tensor, std::int64_t begin, std::int64_t end) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(2 * (end - begin)), 0xaa);
  tensor.copy(begin, bytes);
  return bytes;
}

const Whole kWhole("w", {3, 4}, 1);

TensorRange range(std::int64_t begin, std::int64_t end, Shape whole = {3, 4}) {
  return {.whole = std::move(whole), .begin = begin, .end = end};
}

Files two_parts(const TensorRange& first, const TensorRange& second) {
  Files files;
  for (const TensorRange& each : {first, second})
    files.add({kWhole.part(each.begin, each.end)}, {{"w", each}});
  return files;
}

std::string refusal_of(const Files& files) {
  return testing::message_of<DataError>([&] { (void)files.joined(); });
}

TEST(TensorParts, AreFoundWhereverTheyLie) {
  const auto joined = two_parts(range(5, 12), range(0, 5)).joined();
  ASSERT_EQ(joined.size(), 1U);
  EXPECT_EQ(joined[0].shape, (Shape{3, 4}));
  ASSERT_EQ(joined[0].pieces.size(), 2U);
  EXPECT_EQ(joined[0].pieces[0].file, 1U);
}

TEST(TensorParts, GapsNameTensorElementsAndFiles) {
  EXPECT_EQ(refusal_of(two_parts(range(0, 5), range(7, 12))),
      "file1: elements [5, 7) of the tensor \"w\" of shape (3, 4) are in no part; the others are "
      "in file1 and file2");
  EXPECT_EQ(refusal_of(two_parts(range(5, 12), range(1, 5))),
      "file2: elements [0, 1) of the tensor \"w\" of shape (3, 4) are in no part; the others are "
      "in "
      "file2");
  EXPECT_EQ(refusal_of(two_parts(range(0, 5), range(5, 10))),
      "file2: elements [10, 12) of the tensor \"w\" of shape (3, 4) are in no part; the others "
      "are in file2");
}

TEST(TensorParts, OverlapsNameTensorElementsAndFiles) {
  EXPECT_EQ(refusal_of(two_parts(range(0, 7), range(5, 12))),
      "file2: elements [5, 7) of the tensor \"w\" of shape (3, 4) are in another part, too: file1");
  Files twice;
  twice.add({kWhole.part(0, 5)}, {{"w", range(0, 5)}});
  twice.add({kWhole.entry()}, {});
  EXPECT_THAT(refusal_of(twice), HasSubstr("elements [0, 5) of"));
  Files empty;
  for (int i = 0; i < 2; ++i) empty.add({Whole("e", {0, 3}, 0).entry()}, {});
  EXPECT_THAT(refusal_of(empty), HasSubstr("file2: all of the tensor \"e\""));
}

TEST(TensorParts, PartsOfUnlikeTensorsAreRefused) {
  Files shapes;
  shapes.add({kWhole.part(0, 5)}, {{"w", range(0, 5)}});
  shapes.add({kWhole.part(5, 12)}, {{"w", range(5, 12, {4, 3})}});
  EXPECT_EQ(
      refusal_of(shapes), "file2: the tensor \"w\" is int16 (4, 3) here and int16 (3, 4) in file1");
  Files types;
  types.add({kWhole.part(0, 5)}, {{"w", range(0, 5)}});
  const std::vector<std::uint8_t> wide(7 * 4);
  types.add({{"w", ElementType::kFloat32, {7}, wide}}, {{"w", range(5, 12)}});
  EXPECT_THAT(refusal_of(types), HasSubstr("float32 (3, 4) here and int16 (3, 4)"));
}

TEST(TensorParts, WhatNoWriterSaysOfAPartIsRefused) {
  for (const std::string text :
      {" ", "[]", "7", "{", R"({"w":7})", R"({"w":{}})", R"({"w":{"whole":[3,4],"begin":0}})",
          R"({"w":{"whole":[3,4],"begin":-1,"end":4}})",
          R"({"w":{"whole":[3,4],"begin":0,"end":5,"more":1}})",
          R"({"w":{"whole":[3,4],"begin":0,"end":5},"w":{"whole":[3,4],"begin":0,"end":5}})",
          R"({"other":{"whole":[3,4],"begin":0,"end":5}})",
          R"({"w":{"whole":[3,4],"begin":0,"end":4}})",
          R"({"w":{"whole":[3,4],"begin":8,"end":13}})",
          R"({"w":{"whole":[3,4],"begin":5,"end":5}})",
          R"({"w":{"whole":[3,4],"begin":5,"end":0}})", R"({"w":{"whole":[5],"begin":0,"end":5}})",
          R"({"w":{"whole":[-3,4],"begin":0,"end":5}})",
          R"({"w":{"whole":[4000000000,4000000000],"begin":0,"end":5}})",
          R"({"w":{"whole":[1e99],"begin":0,"end":5}})", R"({"w":{"whole":"3","begin":0,"end":5}})",
          R"({"w":{"whole":[3,4],"begin":0,"end":5}}x)"}) {
    Files files;
    files.add_with({kWhole.part(0, 5)}, text);
    EXPECT_THAT(testing::complaint_of<DataError>([&] { (void)files.joined(); }), HasSubstr("file1"))
        << text;
  }
}

// None where it would be row-major.
Shape drawn_order(const Whole& tensor, Dice& dice) {
  Shape order(tensor.shape.size());
  std::iota(order.begin(), order.end(), 0);
  const Shape row_major = order;
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[dice.below(i + 1)]);
  return order == row_major ? Shape() : order;
}

TEST(TensorParts, OfUnlikeOrdersAreRefused) {
  TensorRange other = range(5, 12);
  other.order = {1, 0};
  EXPECT_EQ(refusal_of(two_parts(range(0, 5), other)),
      "file2: the tensor \"w\" is int16 (3, 4) in the order (1, 0) here and int16 (3, 4) in file1");
}

TEST(TensorParts, AnOrderIsThatOfTheMemory) {
  EXPECT_EQ(memory_order(Shape{2, 3, 4, 5}, Shape{60, 20, 5, 1}), Shape());
  EXPECT_EQ(memory_order(Shape{2, 3, 4, 5}, Shape{60, 1, 15, 3}), (Shape{0, 2, 3, 1}));
  EXPECT_EQ(memory_order(Shape{2, 1, 4, 5}, Shape{20, 1, 5, 1}), Shape());
  EXPECT_EQ(memory_order(Shape{}, Shape{}), Shape());
  EXPECT_EQ(strides_of(Shape{2, 3, 4, 5}, Shape{0, 2, 3, 1}), (Shape{60, 1, 15, 3}));
  EXPECT_EQ(strides_of(Shape{2, 3}, Shape{}), (Shape{3, 1}));
  EXPECT_EQ(range(2, 7).sizes(), (Shape{1, 5}));
  EXPECT_EQ(range(0, 1, {}).sizes(), Shape());
}

// Cuts each tensor, in a drawn order, at drawn places and deals the parts to drawn files.
TEST(TensorParts, DrawnPartsGiveEveryRangeAndTheWholeFile) {
  Dice dice(20261128);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const std::size_t writers = 1 + dice.below(5);
    std::vector<Whole> tensors, row_major;
    std::vector<std::vector<TensorEntry>> entries(writers);
    std::vector<TensorRanges> ranges(writers);
    std::vector<Shape> orders;
    for (std::size_t i = 0; i <= dice.below(4); ++i) {
      Shape shape;
      for (std::size_t d = dice.below(4); d > 0; --d)
        shape.push_back(static_cast<std::int64_t>(dice.below(5)));
      tensors.emplace_back(concat("t", i), shape, static_cast<std::uint8_t>(dice.below(256)));
      row_major.push_back(tensors.back());
      orders.push_back(writers > 1 ? drawn_order(tensors.back(), dice) : Shape());
      if (!orders.back().empty()) tensors.back().reorder(orders.back());
    }
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      const Whole& tensor = tensors[at];
      std::vector<std::int64_t> cuts{0, tensor.elements()};
      for (std::size_t i = 1; i < writers; ++i)
        cuts.push_back(
            static_cast<std::int64_t>(dice.below(static_cast<std::size_t>(tensor.elements()) + 1)));
      std::ranges::sort(cuts);
      const std::size_t turn = dice.below(writers);
      if (tensor.elements() == 0) entries[turn].push_back(tensor.entry());
      for (std::size_t i = 0; i < writers; ++i) {
        TensorRange part = range(cuts[i], cuts[i + 1], tensor.shape);
        part.order = orders[at];
        const std::size_t writer = (i + turn) % writers;
        if (part.size() == 0) continue;
        const bool is_whole = part.size() == tensor.elements();
        if (is_whole) tensors[at] = row_major[at];  // as files have whole tensors
        entries[writer].push_back(is_whole ? tensor.entry() : tensor.part(part.begin, part.end));
        if (!is_whole) ranges[writer].emplace(tensor.name, part);
      }
    }
    Files files;
    for (std::size_t i = 0; i < writers; ++i) files.add(entries[i], ranges[i]);
    auto joined = files.joined();
    ASSERT_EQ(joined.size(), tensors.size());
    std::ranges::sort(joined, {}, &JoinedTensor::name);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(joined[i].shape, tensors[i].shape);
      const auto elements = static_cast<std::size_t>(tensors[i].elements());
      for (int read = 0; read < 4; ++read) {
        const std::size_t begin = dice.below(elements + 1);
        const std::size_t end = begin + dice.below(elements - begin + 1);
        const auto expected = std::span(tensors[i].bytes).subspan(2 * begin, 2 * (end - begin));
        EXPECT_TRUE(std::ranges::equal(
            bytes_of(joined[i], static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)),
            expected));
      }
    }
    std::vector<TensorEntry> all;
    for (const Whole& tensor : row_major) all.push_back(tensor.entry());
    TextSink expected, made;
    write_safetensors(expected, all, {{"format", "pt"}});
    write_safetensors(made, joined, {{"format", "pt"}});
    EXPECT_EQ(made.text, expected.text);
  }
}

TEST(TensorParts, AreNoWeightsOfTheirOwn) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "part.safetensors";
  write_weights(
      path, std::vector{kWhole.part(0, 5)}, {{kTensorParts, to_json({{"w", range(0, 5)}})}});
  EXPECT_THAT(testing::message_of<DataError>([&] { (void)read_weights(path); }),
      HasSubstr("holds parts of tensors"));
}

}  // namespace
}  // namespace lockstep
