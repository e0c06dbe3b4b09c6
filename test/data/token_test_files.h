#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/common/error.h"

namespace infini_train::data::test {

/// A folder of its own for each test, gone after it.
class TokenTest : public testing::Test {
 protected:
    TokenTest()
        : folder_(std::filesystem::path(testing::TempDir()) /
                  (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + "." +
                   std::to_string(getpid()))) {
        std::filesystem::create_directories(folder_);
    }
    ~TokenTest() override { std::filesystem::remove_all(folder_); }

    std::string Path(const std::string& name) const { return (folder_ / name).string(); }

    std::vector<std::string> FilesInFolder() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
            names.push_back(entry.path().filename().string());
        }
        return names;
    }

    std::string WriteBytes(const std::string& name, const std::string& bytes) const {
        std::ofstream(Path(name), std::ios::binary) << bytes;
        return Path(name);
    }

    /// A file by hand: header words as given, the others 0, then the tokens.
    template <typename Id>
    std::string WriteWords(const std::string& name, const std::map<size_t, int32_t>& header,
                           const std::vector<Id>& tokens) const {
        std::vector<int32_t> words(256);
        for (const auto& [index, word] : header) {
            words[index] = word;
        }
        std::string bytes(reinterpret_cast<const char*>(words.data()), 1024);
        bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Id));
        return WriteBytes(name, bytes);
    }

    std::string WriteGpt2(const std::string& name, const std::vector<uint16_t>& tokens) const {
        return WriteWords(name, {{0, 20240520}, {1, 1}, {2, static_cast<int32_t>(tokens.size())}}, tokens);
    }

    std::string WriteLlama3(const std::string& name, const std::vector<uint32_t>& tokens) const {
        return WriteWords(name, {{0, 20240801}, {1, 7}, {2, static_cast<int32_t>(tokens.size())}}, tokens);
    }

 private:
    std::filesystem::path folder_;
};

/// The message of the Error that f throws; a failure when it throws none, or one that does not exit with 2.
template <typename F>
std::string ErrorOf(const F& f) {
    try {
        f();
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), 2) << error.what();
        return error.what();
    }
    ADD_FAILURE() << "no Error";
    return "";
}

/// Expects an Error whose message has all the parts.
template <typename F>
void ExpectError(const F& f, const std::vector<std::string>& parts) {
    const std::string message = ErrorOf(f);
    for (const std::string& part : parts) {
        EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
    }
}

}  // namespace infini_train::data::test
