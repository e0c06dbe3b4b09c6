#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/safetensors.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "test/checkpoint/llmc_files.h"
#include "test/checkpoint/safetensors_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::WriteTextFile;
using SafetensorsHeader = SafetensorsTest;

// O68
TEST_F(SafetensorsHeader, RefusesADuplicateTensorByItsName) {
    const std::string json = "{" + EntryOf("w", "U8", "[4]", 0, 4) + "," + EntryOf("w", "F32", "[1]", 0, 4) + "}";
    ExpectRefused(FileOf(json, DataOf(1)), {"duplicate key \"w\""});
    ExpectRefused(FileOf(R"({"w": {}, "\u0077": {}})", ""), {"\"w\""});
}

TEST_F(SafetensorsHeader, RefusesDuplicateKeysWithinAnEntryOrTheMetadata) {
    ExpectHeaderRefused(R"({"w": {"dtype": "F32", "shape": [2], "shape": [2], "data_offsets": [0, 8]}})",
                        {"\"w\"", "duplicate key \"shape\""});
    ExpectHeaderRefused(R"({"__metadata__": {"k": "1", "k": "1"}})", {"duplicate key \"k\""});
    ExpectHeaderRefused(R"({"__metadata__": {}, "__metadata__": {}})", {"duplicate key \"__metadata__\""});
}

// O69
TEST_F(SafetensorsHeader, AcceptsWhiteSpaceAroundTheHeaderAndRefusesNul) {
    const std::string json = "{" + EntryOf("w", "F32", "[2]", 0, 8) + "}";
    for (const std::string padding : {" ", "       ", "\t", "\n", "\r", " \r\n\t "}) {
        EXPECT_EQ(Values(Open(FileOf(json + padding, DataOf(2))), "w"), Counting(1, 2));
        EXPECT_EQ(Values(Open(FileOf(padding + json, DataOf(2))), "w"), Counting(1, 2));
    }
    ExpectRefused(FileOf(json + std::string(1, '\0'), DataOf(2)), {"is NUL", "spaces"});
    ExpectRefused(FileOf(json + "  " + std::string(5, '\0'), DataOf(2)), {StrCat("byte ", json.size() + 2), "is NUL"});
    ExpectRefused(FileOf(std::string(1, '\0') + json, DataOf(2)), {"byte 0", "is NUL"});
}

TEST_F(SafetensorsHeader, RefusesWhatIsNotStrictJson) {
    const std::string entry = EntryOf("w", "F32", "[2]", 0, 8);
    const std::vector<std::string> refused = {
        "",
        "    ",
        "[]",
        "\"w\"",
        "1",
        "null",
        "{" + entry,
        "{" + entry + ",}",
        "{" + entry + "} x",
        "{" + entry + "}{}",
        "{/* */" + entry + "}",
        "{" + entry + "}\v",
        "\xEF\xBB\xBF{" + entry + "}",  // a byte order mark
        "{'w': {}}",
        "{w: {}}",
        R"({"w": {"dtype": "F32", "shape": [2,], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [0x2], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [02], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [+2], "data_offsets": [0, 8]}})",
        "{\"a\nb\": {}}",
        R"({"\x": {}})",
        R"({"\ud800": {}})",
    };
    for (const std::string& json : refused) {
        ExpectHeaderRefused(json, {"JSON"});
    }
}

TEST_F(SafetensorsHeader, RefusesInvalidUtf8) {
    // A lone continuation, an overlong '/', a surrogate, above U+10FFFF, cut short.
    for (const std::string bad : {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\xFF"}) {
        ExpectHeaderRefused("{" + EntryOf(bad, "F32", "[2]", 0, 8) + "}", {"JSON"});
        ExpectHeaderRefused("{" + EntryOf("w", "F32", "[2]", 0, 8) + "}" + bad, {"JSON"});
    }
    EXPECT_TRUE(
        Open(FileOf("{" + EntryOf("\xE6\xB3\xA8", "F32", "[2]", 0, 8) + "}", DataOf(2))).Contains("\xE6\xB3\xA8"));
}

TEST_F(SafetensorsHeader, RefusesNumbersThatAreNotIntegersBelowTwoToThe53) {
    for (const std::string bad : {"-1", "-0", "2.0", "2e0", "2E0", "0.5", "9007199254740992", "9223372036854775807",
                                  "18446744073709551616", "1e999"}) {
        const std::vector<std::string> parts =
            bad == "1e999" ? std::vector<std::string>{"JSON"} : std::vector<std::string>{bad, "wanted an integer"};
        ExpectHeaderRefused("{" + EntryOf("w", "F32", "[" + bad + "]", 0, 8) + "}", parts);
        ExpectHeaderRefused(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, )" + bad + "]}}", parts);
    }
    // The largest number that is legal is refused by its size alone.
    ExpectHeaderRefused("{" + EntryOf("w", "F32", "[9007199254740991]", 0, 8) + "}", {"data_offsets do not fit"});
}

TEST_F(SafetensorsHeader, RefusesDeepNesting) {
    ExpectHeaderRefused(R"({"w": {"dtype": "F32", "shape": [[2]], "data_offsets": [0, 8]}})", {"\"w\".\"shape\""});
    ExpectHeaderRefused(R"({"__metadata__": {"k": {"k": "v"}}})", {"__metadata__"});
    const std::string deep(1000000, '[');
    ExpectHeaderRefused("{\"w\": " + deep, {"\"w\""});
    ExpectHeaderRefused(R"({"w": {"shape": )" + deep, {"\"w\".\"shape\""});
}

TEST_F(SafetensorsHeader, RefusesEntriesOfAnotherForm) {
    const std::vector<std::string> refused = {
        R"({"w": 1})",
        R"({"w": null})",
        R"({"w": []})",
        R"({"w": {}})",
        R"({"w": {"dtype": "F32", "shape": [2]}})",
        R"({"w": {"dtype": "F32", "data_offsets": [0, 8]}})",
        R"({"w": {"shape": [2], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0]}})",
        R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": 8}})",
        R"({"w": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [null], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": {"2": 2}, "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": 32, "shape": [2], "data_offsets": [0, 8]}})",
        R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "strides": [1]}})",
    };
    for (const std::string& json : refused) {
        ExpectHeaderRefused(json, {"\"w\""});
    }
    for (const std::string metadata : {"1", "null", "[]", "\"pt\"", R"({"k": 1})", R"({"k": true})", R"({"k": []})"}) {
        ExpectHeaderRefused(R"({"__metadata__": )" + metadata + "}", {"__metadata__", "strings"});
    }
}

TEST_F(SafetensorsHeader, ANameOfTheFileCannotBreakTheLineOfTheMessage) {
    WriteTextFile(path_, FileOf("{" + EntryOf("a\\nb" + std::string(10000, 'x'), "F31", "[2]", 0, 8) + "}", DataOf(2)));
    try {
        OpenSafetensors(path_);
        FAIL() << "no Error";
    } catch (const Error& error) {
        const std::string line = error.what();
        EXPECT_EQ(line.find('\n'), std::string::npos);
        EXPECT_LT(line.size(), 1000u);
    }
}

}  // namespace
}  // namespace infini_train::checkpoint::test
