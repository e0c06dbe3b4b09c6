#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "infini_train/include/core/tensor.h"
#include "infini_train/include/kernels/attention.h"
#include "infini_train/include/nn/module.h"

namespace infini_train::nn {

/// The keys and values of the positions that a slice of a model has seen, so that a generation computes each position
/// once. One for a slice, shared by its attention modules as DropoutPosition is by its Dropout modules. Holds no memory
/// but while a generation runs.
class KvCache {
 public:
    /// A place for the keys and values of one more layer.
    int AddLayer();

    /// The next forward begins a sequence of at most so many positions.
    void Begin(int64_t max_positions, const Device& device);
    /// Gives the memory back. Forwards compute all their positions again.
    void End();

    /// Whether the forward of x goes on from the cache. (That of an imagined x, on a device without values, never
    /// does.)
    bool Serves(const Tensor& x) const;
    /// Positions that all layers have seen: the first of the next forward.
    int64_t length() const { return length_; }
    /// kernels/attention_cached.h for one layer, from position length() on. The first call takes [B, max_positions, K,
    /// D] for keys and for values. CHECKs that nothing is recorded for a backward.
    std::shared_ptr<Tensor> Attend(int layer, const Tensor& qkv, const kernels::AttentionHeads& heads);
    /// All layers have seen so many more.
    void Advance(int64_t num_positions) { length_ += num_positions; }

 private:
    struct Layer {
        std::shared_ptr<Tensor> keys = nullptr;
        std::shared_ptr<Tensor> values = nullptr;
    };
    std::vector<Layer> layers_;
    Device device_ = {};
    int64_t max_positions_ = 0;  // 0: no generation
    int64_t length_ = 0;
};

/// A slice of a model that can go on from positions it has seen.
class CachedModule : public Module {
 public:
    const std::shared_ptr<KvCache>& kv_cache() const { return kv_cache_; }

 private:
    std::shared_ptr<KvCache> kv_cache_ = std::make_shared<KvCache>();
};

/// Of x [B, T, C] the last position of each row, [B, 1, C]: all that a generation wants of the logits.
std::shared_ptr<Tensor> LastPositions(const Tensor& x);

/// While it lives, the forwards of the chunks go on from one another.
class KvCacheScope {
 public:
    /// CHECKs that the chunks are CachedModules.
    KvCacheScope(const std::vector<std::shared_ptr<Module>>& chunks, int64_t max_positions, const Device& device);
    ~KvCacheScope();
    KvCacheScope(const KvCacheScope&) = delete;
    KvCacheScope& operator=(const KvCacheScope&) = delete;

 private:
    std::vector<std::shared_ptr<KvCache>> caches_;
};

}  // namespace infini_train::nn
