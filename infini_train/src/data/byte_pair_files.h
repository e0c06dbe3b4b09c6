#pragma once

#include <cstdint>
#include <string>

#include "infini_train/src/data/byte_pair_vocabulary.h"

namespace infini_train::data {

/// The readers of the files that byte-pair tokenizers come in. Each throws Error for the first field that is not as it
/// must be, with its place.

/// Of a file of one of these kinds, told apart by its content, or of a folder: its tokenizer.json, else vocab.json and
/// merges.txt, else tokenizer.model.
BytePairVocabulary ReadBytePairVocabulary(const std::string& path);

/// The bytes of a file of at most 256 MiB, far more than any tokenizer has.
std::string ReadTokenizerFile(const std::string& path);

inline constexpr int32_t kLlmcTokenizerMagic = 20240328;

/// llm.c's tokenizer .bin: 256 little-endian int32 (20240328, version 1 or 2, number V of tokens, and from version 2 on
/// the id of the end of a text), then V times a length of one byte and so many bytes; nothing after them. It is
/// GPT-2's: version 1 has 50257 tokens, the last one the end of a text. The merges follow from the order of the ids.
BytePairVocabulary ReadLlmcTokenizer(const std::string& path, const std::string& bytes);

/// Lines of "base64 rank", ranks from 0 on, as in cl100k_base.tiktoken and LLaMA-3's tokenizer.model. The number of
/// ranks says which it is, since special tokens and pattern are not in the file: 50256 GPT-2, 100256 cl100k, 128000
/// LLaMA-3 (special tokens named as in version 3.1).
BytePairVocabulary ReadTiktokenRanks(const std::string& path, const std::string& bytes);

/// GPT-2's vocab.json {"token": id, ...} and merges.txt, a merge "left right" a line, in the byte-level alphabet. What
/// no merge makes and is no byte is a special token.
BytePairVocabulary ReadGpt2Folder(const std::string& folder);

/// Hugging Face's tokenizer.json, where it says byte-level BPE: model BPE in the byte-level alphabet; added tokens that
/// are special; a pre-tokenizer ByteLevel, or Split by a regular expression and ByteLevel; no normalizer. What it puts
/// around a text (post_processor) is left to the caller.
BytePairVocabulary ReadTokenizerJson(const std::string& path, const std::string& bytes);

}  // namespace infini_train::data
