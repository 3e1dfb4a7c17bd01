// Latent attention in its absorbed form, in which serving programs compute it (multi-head latent
// attention, arXiv:2405.04434): a cache of one latent vector and one rotated key for each token,
// which all heads share, and queries that are multiplied by the weights of the keys, W_UK.
//
//   scores = Q_nope . CKV + Q_pe . K_pe,  values = CKV
//
//   Q_nope, Q_pe                (B, H, L, R) and (B, H, L, Dr), or in another layout with heads
//   CKV, K_pe                   (B, S, R) and (B, S, Dr), with Layout::thd (S, R) and (S, Dr)
//   CKV_pages, K_pe_pages       instead: cache/pages.h; or KV_pages with both beside each other
//
// It is the problem of Q = [Q_nope Q_pe], K = [CKV K_pe] with one head, and V = CKV: the first
// Options::value_width columns of K.
#pragma once

#include <cstddef>

#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

bool has_latent(const TensorMap& tensors);

/// Q, or Q_nope; nullptr if the job has neither.
const Tensor* given_queries(const TensorMap& tensors);

/// The memory of with_latent_rows(); saturates.
std::size_t bytes_of_latent(const TensorMap& tensors);

/// The job with Q and, unless they are in pages, K and V (tensor/gathered_rows.h). Sets
/// Options::value_width. Errors: data, for shapes and scales that do not fit.
TensorMap with_latent_rows(const TensorMap& tensors, Options& options);

/// Requires that the scale is given if values are columns of the keys: the default would be that of
/// the width of K. Errors: data.
void require_scale(const Options& options);

}  // namespace attn
