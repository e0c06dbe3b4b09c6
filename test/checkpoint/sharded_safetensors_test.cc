#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/safetensors.h"
#include "infini_train/include/common/str_cat.h"
#include "test/checkpoint/llmc_files.h"
#include "test/checkpoint/safetensors_files.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReadTextFile;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

class ShardedSafetensors : public testing::Test {
 protected:
    ShardedSafetensors() {
        WriteTextFile(folder_.File("one"), FileOf("{" + EntryOf("a", "F32", "[2]", 0, 8) + "," +
                                                      EntryOf("h.0.attn.bias", "U8", "[4]", 8, 12) + "}",
                                                  DataOf(3)));
        WriteTextFile(folder_.File("two"),
                      FileOf("{" + EntryOf("b", "BF16", "[2]", 0, 4) + "}", DataOf(2, DataType::kBFloat16)));
    }
    std::vector<WeightFile> Open(const std::string& index) {
        WriteTextFile(path_, index);
        return OpenShardedSafetensors(path_);
    }
    void ExpectRefused(const std::string& index, std::vector<std::string> parts) {
        SCOPED_TRACE(index);
        ExpectRefusal([&] { Open(index); }, parts);
    }
    /// The map of the two good shards, with this file for b.
    void ExpectShardRefused(const std::string& file, std::vector<std::string> parts) {
        ExpectRefused(IndexOf(StrCat(kMapOfOne, R"(, "b": ")", file, "\"")), parts);
    }
    static std::string IndexOf(const std::string& map, const std::string& total = "16") {
        return R"({"metadata": {"total_size": )" + total + R"(}, "weight_map": {)" + map + "}}";
    }

    static constexpr const char* kMapOfOne = R"("a": "one", "h.0.attn.bias": "one")";
    TemporaryFolder folder_;
    std::string path_ = folder_.File("model.safetensors.index.json");
};

TEST_F(ShardedSafetensors, HaveEachTensorInOneFile) {
    const std::string map = StrCat(R"("b": "two", )", kMapOfOne);
    const std::vector<WeightFile> files = Open(IndexOf(map));
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(Values(files[0], "a"), Counting(1, 2));
    EXPECT_FALSE(files[0].Contains("b"));
    EXPECT_FALSE(files[0].Contains("h.0.attn.bias"));
    EXPECT_EQ(Values(files[1], "b"), Counting(1, 2));
    // Exporters write more into the metadata.
    const std::string more =
        R"({"metadata": {"total_parameters": 7, "n": null, "x": {"y": [1, "z"]}, "total_size": 16})";
    EXPECT_EQ(Open(more + R"(, "weight_map": {)" + map + "}}\n").size(), 2u);
}

TEST_F(ShardedSafetensors, AreFoundBesideAnIndexInTheCurrentFolder) {
    Open(IndexOf(StrCat(R"("b": "two", )", kMapOfOne)));
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder_.File(""));
    EXPECT_EQ(OpenShardedSafetensors("model.safetensors.index.json").size(), 2u);
    std::filesystem::current_path(before);
}

// O72
TEST_F(ShardedSafetensors, AreBareFileNamesInTheFolderOfTheIndex) {
    const TemporaryFolder outside;
    std::filesystem::copy_file(folder_.File("two"), outside.File("two"));
    std::filesystem::create_directory(folder_.File("sub"));
    std::filesystem::copy_file(folder_.File("two"), folder_.File("sub/two"));
    const std::string outside_name = std::filesystem::path(outside.File("")).parent_path().filename();
    for (const std::string& name :
         {std::string("../../x"), "../" + outside_name + "/two", outside.File("two"), folder_.File("two"),
          std::string("/etc/passwd"), std::string("sub/two"), std::string("./two"), std::string("two/"),
          std::string(".."), std::string("."), std::string(""), std::string("sub\\\\two"), std::string("..two"),
          std::string("two\\u0000.safetensors"), std::string("\\u002e\\u002e/x")}) {
        ExpectShardRefused(name, {path_, "leads out of the folder", "bare name"});
    }
    std::filesystem::create_symlink(outside.File("two"), folder_.File("link"));
    ExpectShardRefused("link", {path_, "\"link\" is a link out of the folder", outside.File("two")});
    std::filesystem::create_symlink("sub/two", folder_.File("link_to_sub"));
    ExpectShardRefused("link_to_sub", {path_, "is a link out of the folder"});
    std::filesystem::create_symlink("two", folder_.File("link_within"));
    EXPECT_EQ(Open(IndexOf(StrCat(kMapOfOne, R"(, "b": "link_within")"))).size(), 2u);
    std::filesystem::create_symlink("nowhere", folder_.File("dangling"));
    ExpectShardRefused("dangling", {folder_.File("dangling"), "cannot open"});
    ExpectShardRefused("missing", {folder_.File("missing"), "cannot open"});
    ExpectShardRefused("sub", {folder_.File("sub"), "not a regular file"});
}

TEST_F(ShardedSafetensors, AFolderReachedThroughALinkIsNoLinkOutOfIt) {
    Open(IndexOf(StrCat(R"("b": "two", )", kMapOfOne)));
    const TemporaryFolder other;
    std::filesystem::create_directory_symlink(std::filesystem::path(path_).parent_path(), other.File("model"));
    EXPECT_EQ(OpenShardedSafetensors(other.File("model/model.safetensors.index.json")).size(), 2u);
}

TEST_F(ShardedSafetensors, HaveTheMappedTensorsAndNoOthers) {
    ExpectRefused(IndexOf(StrCat(R"("b": "two", "c": "two", )", kMapOfOne)),
                  {folder_.File("two"), "has no tensor \"c\"", path_});
    ExpectRefused(IndexOf(R"("b": "two", "a": "one")"), {path_, "\"h.0.attn.bias\"", folder_.File("one")});
    ExpectRefused(IndexOf(R"("b": "two", "a": "two", "h.0.attn.bias": "one")"), {path_, "\"a\"", folder_.File("one")});
    ExpectRefused(IndexOf(kMapOfOne, "16"), {path_, "total_size", "got 16 bytes", "wanted 12"});
    // The same tensor in two shards.
    WriteTextFile(
        folder_.File("three"),
        FileOf("{" + EntryOf("b", "F32", "[1]", 0, 4) + "," + EntryOf("c", "F32", "[1]", 4, 8) + "}", DataOf(2)));
    ExpectRefused(IndexOf(StrCat(R"("b": "two", "c": "three", )", kMapOfOne), "24"),
                  {path_, "\"b\"", folder_.File("three")});
}

TEST_F(ShardedSafetensors, ABadShardIsRefusedByItsName) {
    const std::string two = ReadTextFile(folder_.File("two"));
    const std::string index = IndexOf(StrCat(R"("b": "two", )", kMapOfOne));
    for (const size_t cut : {size_t{1}, size_t{4}}) {
        WriteTextFile(folder_.File("two"), two.substr(0, two.size() - cut));
        ExpectRefused(index, {folder_.File("two"), "cut short"});
    }
    WriteTextFile(folder_.File("two"), FileOf("{" + EntryOf("b", "F16", "[2]", 0, 4) + "}", DataOf(1)));
    ExpectRefused(index, {folder_.File("two"), "\"b\"", "got F16"});
}

TEST_F(ShardedSafetensors, RefuseAnIndexOfAnotherForm) {
    const std::string map = StrCat(R"("b": "two", )", kMapOfOne);
    const std::string good_map = R"("weight_map": {)" + map + "}";
    for (const std::string total : {"15", "17", "0"}) {
        ExpectRefused(IndexOf(map, total), {path_, "total_size", "got " + total + " bytes", "wanted 16"});
    }
    for (const std::string total : {"16.0", "-16", "\"16\"", "null", "[16]", "{}", "9007199254740992", "1.6e1"}) {
        ExpectRefused(IndexOf(map, total), {path_, "total_size"});
    }
    for (const std::string& json :
         {std::string(""), std::string("[]"), std::string("{}"), "{" + good_map + "}",
          std::string(R"({"metadata": {"total_size": 0}})"), R"({"metadata": {}, )" + good_map + "}",
          R"({"metadata": {"total_size": 16}, "more": 1, )" + good_map + "}", R"({"metadata": 16, )" + good_map + "}",
          R"({"metadata": [{"total_size": 16}], )" + good_map + "}",
          std::string(R"({"metadata": {"total_size": 0}, "weight_map": []})"),
          std::string(R"({"metadata": {"total_size": 0}, "weight_map": {"a": 1}})"),
          std::string(R"({"metadata": {"total_size": 0}, "weight_map": {"a": {"total_size": 1}}})"),
          std::string(R"({"metadata": {"total_size": 0}, "weight_map": {"a": ["one"]}})"), IndexOf(map) + "x",
          IndexOf(map) + std::string(1, '\0'), "\xEF\xBB\xBF" + IndexOf(map)}) {
        ExpectRefused(json, {path_});
    }
    ExpectRefused(IndexOf(map + R"(, "b": "two")"), {path_, "weight_map", "duplicate key \"b\""});
    ExpectRefused(IndexOf(map, R"(16, "total_size": 16)"), {path_, "duplicate key \"total_size\""});
    ExpectRefused(IndexOf(map, R"(16, "x": [[[1]]])"), {path_, "nested deeper than 4"});
    ExpectRefused(IndexOf(map, R"(16, "x": )" + std::string(100000, '[')), {path_, "nested deeper than 4"});
    EXPECT_EQ(Open(IndexOf(map, R"(16, "x": [[1]])")).size(), 2u);
    ASSERT_EQ(truncate(path_.c_str(), 100000001), 0);
    ExpectRefusal([&] { OpenShardedSafetensors(path_); }, {path_, "too large"});
}

TEST_F(ShardedSafetensors, AFlippedByteOfTheIndexIsRefusedOrLoads) {
    const std::string index = IndexOf(StrCat(R"("b": "two", )", kMapOfOne));
    Open(index);
    EXPECT_GT(NumRefusedFlips(path_, index.size(), 1000, [&] { OpenShardedSafetensors(path_); }), 900);
    EXPECT_EQ(OpenShardedSafetensors(path_).size(), 2u);
}

}  // namespace
}  // namespace infini_train::checkpoint::test
