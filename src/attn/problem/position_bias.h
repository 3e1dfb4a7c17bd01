// Biases of scores that depend on distance.
//
// ALiBi: a penalty that grows linearly with distance (Press et al. 2022, arXiv:2108.12409).
// Relative bias: learned, one for each bucket of distances, whose width grows with distance (Raffel
// et al. 2020, arXiv:1910.10683, section 2.1).
#pragma once

#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// (1, H), f64. With n the largest power of two up to H: 2^(-8 / n), 2^(-16 / n), ... for n heads,
/// then 2^(-4 / n), 2^(-12 / n), ... for the others.
Tensor standard_slopes(std::size_t H);

/// The biases of in.rows, (B, H, R, S) or (1, H, R, S): minus the slope of the head (slopes (B, H)
/// or (1, H)) times the distance between the positions of query and key. Appended keys have
/// distance 0.
Tensor alibi_bias(const Tensor& slopes, const Inputs& in);

/// The bucket, of `buckets`, of a key at distance `ahead` after the query (negative: before). With
/// both_ways, the upper half of the buckets is for keys after the query; otherwise these count as
/// distance 0.
/// Of the n buckets of one direction, the first n / 2 hold one distance each and the others widen
/// exponentially up to max_distance; distances >= max_distance are in the last one.
std::size_t relative_bucket(std::int64_t ahead, std::size_t buckets, bool both_ways,
                            std::int64_t max_distance);

/// The same with direction and max_distance from the options.
std::size_t bucket_of(std::int64_t ahead, std::size_t buckets, const Options& options);

/// table[bucket(distance), head] for in.rows: (B, H, R, S) or (1, H, R, S) from a table
/// (buckets, H). Appended keys get 0.
Tensor relative_bias(const Tensor& table, const Inputs& in);

}  // namespace attn
