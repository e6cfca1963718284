#include "lockstep/formats/weights/npy.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "tests/formats/mutated.h"
#include "tests/formats/weights/zip_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using Bytes = std::vector<std::uint8_t>;

/// Makes an array's file: version, header, and so many bytes of numbers 1, 2, 3, ...
Bytes npy_bytes(const std::string& header, std::size_t data_bytes, int version = 1) {
  Bytes bytes{0x93, 'N', 'U', 'M', 'P', 'Y', static_cast<std::uint8_t>(version), 0};
  append_little_endian(bytes, header.size(), version == 1 ? 2 : 4);
  bytes.insert(bytes.end(), header.begin(), header.end());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<std::uint8_t>(i + 1));
  return bytes;
}

std::string header_of(const std::string& descr, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }   \n";
}

std::string npy_fault(const Bytes& bytes) {
  return message_of<DataError>([&] { parse_npy(bytes, "x", "FILE"); });
}

TEST(Npy, GivesTypeShapeAndBytes) {
  for (const int version : {1, 2, 3}) {
    const Bytes bytes = npy_bytes(header_of("'<i2'", "(2, 3)"), 12, version);
    const TensorEntry entry = parse_npy(bytes, "x", "FILE");
    EXPECT_EQ(entry.name, "x");
    EXPECT_EQ(entry.type, ElementType::kInt16);
    EXPECT_THAT(entry.shape, ElementsAre(2, 3));
    EXPECT_EQ(entry.bytes.data(), bytes.data() + bytes.size() - 12);
    EXPECT_EQ(entry.bytes.size(), 12U);
  }
}

TEST(Npy, TakesAHeaderInAnyOrderAndWithEitherQuote) {
  const Bytes bytes = npy_bytes(R"({"shape": (4,), "fortran_order": True, "descr": "|b1"})", 4);
  EXPECT_EQ(parse_npy(bytes, "x", "FILE").type, ElementType::kBool);
  EXPECT_THAT(parse_npy(bytes, "x", "FILE").shape, ElementsAre(4));
}

TEST(Npy, OfASingleNumberHasNoDimension) {
  const Bytes bytes = npy_bytes(header_of("'<f8'", "()"), 8);
  EXPECT_TRUE(parse_npy(bytes, "x", "FILE").shape.empty());
}

TEST(Npy, SaysHowToSaveWhatIsNotRead) {
  const auto of_type = [](const std::string& descr) {
    return npy_fault(npy_bytes(header_of(descr, "(1,)"), 4));
  };
  EXPECT_THAT(of_type("[('a', '<f4')]"), HasSubstr("save each field as an array of its own"));
  EXPECT_THAT(of_type("'|O'"), HasSubstr("Python's objects, which are not read"));
  EXPECT_THAT(of_type("'>f4'"), HasSubstr("save array.astype(array.dtype.newbyteorder('<'))"));
  EXPECT_THAT(of_type("'<U1'"), HasSubstr("its type \"<U1\" is none that is read"));
  EXPECT_THAT(of_type("'f4'"), HasSubstr("its type \"f4\" is none that is read"));
  EXPECT_THAT(npy_fault(npy_bytes("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", 8)),
      HasSubstr("its numbers lie column by column; save numpy.ascontiguousarray(array)"));
}

TEST(Npy, RefusesWhatIsNoArray) {
  EXPECT_EQ(npy_fault({}), "FILE: offset 0: it does not begin as numpy.save's files do");
  Bytes bytes = npy_bytes("", 0);
  EXPECT_EQ(npy_fault(bytes), "FILE: offset 10: the file ends within its header");
  EXPECT_EQ(
      npy_fault(npy_bytes("{}", 8, 4)), "FILE: offset 6: version 4 of the format is not 1, 2 or 3");
  bytes = npy_bytes(header_of("'<f4'", "(1,)"), 4);
  bytes[8] = 255;
  EXPECT_EQ(npy_fault(bytes),
      "FILE: offset 8: a header of 255 bytes is longer than the file, or than any");
}

TEST(Npy, RefusesAHeaderThatIsNotNumPys) {
  const auto of = [](const std::string& header) { return npy_fault(npy_bytes(header, 4)); };
  EXPECT_THAT(of("{'descr': '<f4', 'shape': (1,)}"),
      HasSubstr("its header lacks descr, fortran_order or shape"));
  EXPECT_THAT(of("{'shape': (1,), 'shape': (1,)}"), HasSubstr("has the key \"shape\" twice"));
  EXPECT_THAT(of("{'sizes': (1,)}"), HasSubstr("has the key \"sizes\" twice, or it is none"));
  EXPECT_THAT(of("{'shape': (1,) 'descr'"), HasSubstr("offset 25: its header is no dict"));
  EXPECT_THAT(of("{'shape': (-1,)}"), HasSubstr("its shape must consist of whole numbers"));
  EXPECT_THAT(of("{'shape': (99999999999999999999,)}"), HasSubstr("whole numbers"));
  EXPECT_THAT(of("{'fortran_order': 0}"), HasSubstr("must be True or False"));
  EXPECT_THAT(of(header_of("'<f4'", "(1,)") + "{"), HasSubstr("goes on after the dict"));
  EXPECT_THAT(of("{'descr': '<f4"), HasSubstr("' is missing"));
}

TEST(Npy, RefusesAnotherNumberOfBytesThanShapeAndTypeSay) {
  EXPECT_THAT(npy_fault(npy_bytes(header_of("'<f4'", "(2, 3)"), 20)),
      HasSubstr("float32 of shape (2, 3) must be followed by as many numbers, and there are 20"));
  EXPECT_THAT(npy_fault(npy_bytes(header_of("'<f4'", "(1,)"), 8)), HasSubstr("there are 8 bytes"));
  const std::string huge = "(4611686018427387904, 4)";
  EXPECT_THAT(npy_fault(npy_bytes(header_of("'<f4'", huge), 0)), HasSubstr("there are 0 bytes"));
}

TEST(Npy, OfRandomBytesIsReadOrRefused) {
  std::mt19937 engine(7);
  const Bytes whole = npy_bytes(header_of("'<i4'", "(2, 3)"), 24);
  for (int i = 0; i < 20'000; ++i) {
    const Bytes bytes = testing::mutated(whole, 80, engine);
    testing::read_within(4096, [&] { return parse_npy(bytes, "x", "FILE").shape.size(); });
  }
}

TEST(Npy, IsMappedUnderTheNameThatItIsGiven) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("x.npy", npy_bytes(header_of("'<i4'", "(2,)"), 8));
  const TensorFile file = read_npy(path, "rows");
  ASSERT_NE(file.find("rows"), nullptr);
  EXPECT_THAT(file.find("rows")->bytes, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Npz, OfNumPyIsRead) {
  const TensorFile file = read_npz(LOCKSTEP_WEIGHTS_DATA "/arrays.npz");
  ASSERT_EQ(file.entries().size(), 5U);
  std::vector<std::string> names;
  for (const TensorEntry& entry : file.entries()) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("x", "target.mask", "wide", "y", "one"));
  EXPECT_THAT(file.find("x")->shape, ElementsAre(2, 3));
  EXPECT_THAT(file.find("target.mask")->bytes, ElementsAre(1, 0));
  std::int64_t second = 0;
  std::memcpy(&second, file.find("y")->bytes.data() + 8, 8);
  EXPECT_EQ(second, -100);
}

std::string fault_of_archive(const std::vector<testing::ZipPart>& parts) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("a.npz", testing::zip_bytes(parts));
  return message_of<DataError>([&] { read_npz(path); });
}

TEST(Npz, RefusesWhatIsCompressedOrNoArray) {
  EXPECT_THAT(fault_of_archive({{.name = "x.npy", .content = "abc", .method = 8}}),
      HasSubstr("\"x.npy\" is compressed, and cannot be mapped; save it by numpy.savez("));
  EXPECT_THAT(fault_of_archive({{.name = "x.txt", .content = "abc"}}),
      HasSubstr("\"x.txt\" is no array, by its name"));
  EXPECT_THAT(fault_of_archive({{.name = "x.npy", .content = "abc"}}),
      HasSubstr("a.npz: x.npy: offset 0: it does not begin as numpy.save's files do"));
}

}  // namespace
}  // namespace lockstep
