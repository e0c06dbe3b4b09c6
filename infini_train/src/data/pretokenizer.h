#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;

namespace infini_train::data {

/// GPT-2's words (its encoder.py): contractions in small letters, letters, numbers, others, each with a blank before it
/// where there is one; the last blank of a run goes to the word after it.
extern const char* const kGpt2Pattern;
/// Those of cl100k and LLaMA-3 (its tokenizer.py): contractions in any case, numbers of at most three digits, line ends
/// with what is before them.
extern const char* const kLlama3Pattern;

/// Cuts text into the words that byte-pair encoding works on. Together they are the text.
///
/// The pattern is a regular expression over Unicode characters with `\s`, `\p{..}` and so on of Unicode; the matches
/// are words, and what is between two of them is a word. So is a run of bytes that are not UTF-8: no pattern can say
/// anything about them, and the text on each side of it is cut as if it ended there.
class Pretokenizer {
 public:
    /// file: for messages. Throws Error for what is not a regular expression.
    Pretokenizer(const std::string& file, const std::string& pattern);

    /// Throws Error when the pattern takes too much time or memory on this text: it looks back and forth too often.
    void ForEachWord(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
    std::string file_;
    std::shared_ptr<const pcre2_real_code_8> code_;
    std::shared_ptr<pcre2_real_match_context_8> limits_;
};

}  // namespace infini_train::data
